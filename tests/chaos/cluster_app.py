"""The app that the chaos of the cluster runs: the blueprints of test_kill9, a chain, and a question to a person."""

import asyncio
from typing import Any

from regista import ActionFactory, JobContext, StateMachineBlueprint, TaskContext, TransientError, Worker
from tests.chaos import kill9_child

#: How often each kind is submitted.
KINDS = kill9_child.KINDS | {"chain": 4, "ask": 2, "long": 2}

one, flaky, long, fan, nap, parent, slow = kill9_child.blueprints()
chain = StateMachineBlueprint("chain")
ask = StateMachineBlueprint("ask")
worker = Worker("troupe", concurrency=20)


@worker.task("one")
async def do_one(params: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(params["n"] % 4 * 0.1)  # so that every fault finds some under way
    return {"n": params["n"]}


@worker.task("flaky")
async def do_flaky(params: dict[str, Any], context: TaskContext) -> dict[str, Any]:
    if context.attempt == 1:
        raise TransientError("the first time always fails")
    return await do_one(params)


@worker.task("long")
async def do_long(params: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(1.3)
    return {"n": params["n"]}


@chain.handler_for("start", is_start=True)
def begin(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("one", {"n": context.initial_data["n"] - 2}, {"success": "second"})


@chain.handler_for("second")
def go_on(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("one", {"n": context.state_history["n"] + 1}, {"success": "third"})


@chain.handler_for("third")
def go_further(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("one", {"n": context.state_history["n"] + 1}, {"success": "done"})


@ask.handler_for("start", is_start=True)
def ask_somebody(context: JobContext, actions: ActionFactory) -> None:
    context.state_history["n"] = context.initial_data["n"]
    actions.await_human_approval("may it end?", {"approve": "done"})


@ask.handler_for("done", is_end=True)
@chain.handler_for("done", is_end=True)
def done(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result(context.state_history["n"])


def blueprints() -> list[StateMachineBlueprint]:
    return [one, flaky, long, fan, nap, parent, slow, chain, ask]
