"""The app that the chaos of the stage runs: the blueprints of test_kill9, and a worker for all of their tasks."""

import asyncio
from typing import Any

from regista import TaskContext, TransientError, Worker
from tests.chaos.kill9_child import blueprints

one, flaky, long, fan, nap, parent, slow = blueprints()
worker = Worker("troupe", concurrency=20)


@worker.task("one")
async def do_one(params: dict[str, Any]) -> dict[str, Any]:
    return {"n": params["n"]}


@worker.task("flaky")
async def do_flaky(params: dict[str, Any], context: TaskContext) -> dict[str, Any]:
    if context.attempt == 1:
        raise TransientError("the first time always fails")
    return {"n": params["n"]}


@worker.task("long")
async def do_long(params: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(1.3)
    return {"n": params["n"]}
