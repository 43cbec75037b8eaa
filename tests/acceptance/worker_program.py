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


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(message)s")
    run([worker])
    note("out")
