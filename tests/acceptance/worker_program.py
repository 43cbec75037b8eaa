"""A worker in a process of its own, for the tests: notes what it does in the file that it is given."""

import asyncio
import logging
import sys
import time
from typing import Any

from regista.worker import TaskContext, Worker, run

NOTES = sys.argv[1]
worker = Worker("program")


def note(line: str) -> None:
    with open(NOTES, "a") as file:
        file.write(line + "\n")


@worker.task("work")
async def work(params: dict[str, Any], context: TaskContext) -> dict[str, Any]:
    note(f"began {context.attempt}")
    await asyncio.sleep(params.get("seconds", 0))
    note(f"ended {context.attempt}")
    return {"by": "program", "attempt": context.attempt}


@worker.task("stubborn")
def stubborn(params: dict[str, Any], context: TaskContext) -> None:
    note("stubborn")
    time.sleep(60)


@worker.task("swallowing")
async def swallowing(params: dict[str, Any]) -> None:
    note("swallowing")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note("swallowed")


@worker.task("blocking")
async def blocking(params: dict[str, Any]) -> None:
    note("blocking")
    await asyncio.sleep(0)
    time.sleep(params["seconds"])  # noqa: ASYNC251  # what nobody should do


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(message)s")
    run([worker])
    note("out")
