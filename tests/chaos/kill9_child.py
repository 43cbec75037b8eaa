"""The process that test_kill9 kills: submits jobs, runs them, and writes down what it was promised.

`python kill9_child.py STORE DIARY LIFE REPLAYS [--drain]`. REPLAYS is a file of `KEY BLUEPRINT N` lines, submits
of earlier lives that are sent again. Each line of the diary is one `write`, so what is in it had happened
before the kill:

    ready                         the orchestrator has started
    try KEY BLUEPRINT N           a submit with that idempotency key is about to be sent
    ack ID BLUEPRINT N KEY        it was acknowledged (KEY is - without one)
    end ID STATUS RESULT          a waiter was told the end
"""

import argparse
import asyncio
import json
import os
import random
import sqlite3
from pathlib import Path
from typing import Any

from regista import (
    ActionFactory,
    Config,
    Job,
    JobContext,
    OrchestratorEngine,
    RetryPolicy,
    StateMachineBlueprint,
    TransientError,
    Worker,
)

CLIENTS = 8
#: Branches of the fan-out.
BRANCHES = 5
#: How often each kind is submitted; `long` outlives the moment when "started" is stored.
KINDS = {"one": 8, "fan": 4, "flaky": 4, "nap": 3, "parent": 4, "slow": 4, "long": 1}


def expected_result(kind: str, n: int) -> int:
    """What the job must answer, however often it was interrupted."""
    return sum(n + branch for branch in range(BRANCHES)) if kind == "fan" else n


def blueprints() -> list[StateMachineBlueprint]:
    return [
        *(_one_task(kind, kind) for kind in ("one", "flaky", "long")),
        _fan(),
        _nap(),
        _parent(),
        _slow(),
    ]


def _one_task(name: str, task: str) -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint(name)

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        retry = RetryPolicy(max_attempts=6, first_s=0.02)
        actions.dispatch_task(task, {"n": context.initial_data["n"]}, {"success": "done"}, retry=retry)

    _add_end(blueprint)
    return blueprint


def _add_end(blueprint: StateMachineBlueprint) -> None:
    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(context.state_history["n"])


def _fan() -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint("fan")

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        n = context.initial_data["n"]
        actions.dispatch_parallel(
            [{"type": "one", "params": {"n": n + i}} for i in range(BRANCHES)], "gather"
        )

    @blueprint.aggregator_for("gather", is_end=True)
    def gather(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(sum(result["data"]["n"] for result in context.aggregation_results.values()))

    return blueprint


def _nap() -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint("nap")

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        context.state_history["n"] = context.initial_data["n"]
        actions.sleep(0.05, then="done")

    _add_end(blueprint)
    return blueprint


def _parent() -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint("parent")

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("one", {"n": context.initial_data["n"]}, transitions={"success": "done"})

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(context.state_history["child_one"]["result"])

    return blueprint


def _slow() -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint("slow")

    @blueprint.handler_for("start", is_start=True)
    async def start(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(0.03)  # longer than the executor's patience
        actions.dispatch_task("one", {"n": context.initial_data["n"]}, {"success": "after"})

    @blueprint.handler_for("after")
    async def after(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(0.03)
        actions.transition_to("done")

    _add_end(blueprint)
    return blueprint


def performers() -> list[Worker]:
    worker = Worker("performer", concurrency=50)
    # A worker of its own, or long tasks that no life is long enough for would take every slot.
    patient = Worker("patient", concurrency=10)

    @worker.task("one")
    async def one(params: dict[str, Any]) -> dict[str, Any]:
        return {"n": params["n"]}

    @worker.task("flaky")
    async def flaky(params: dict[str, Any], context: Any) -> dict[str, Any]:
        if context.attempt == 1:
            raise TransientError("the first time always fails")
        return {"n": params["n"]}

    @patient.task("long")
    async def long(params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(1.3)
        return {"n": params["n"]}

    return [worker, patient]


class Diary:
    """Lines that outlive us: one `write` each, into a file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


class Life:
    """One life of the process."""

    def __init__(self, director: OrchestratorEngine, diary: Diary, number: int) -> None:
        self._director = director
        self._diary = diary
        self._number = number
        self._chance = random.Random(number)
        self._count = 0

    async def live(self) -> None:
        """Submit and wait until somebody kills us."""
        await asyncio.gather(*(self._client() for _ in range(CLIENTS)))

    async def _client(self) -> None:
        while True:
            self._count += 1
            n = self._number * 100_000 + self._count
            kind = self._chance.choices(list(KINDS), list(KINDS.values()))[0]
            job = await self.submit(kind, n, f"key-{n}" if self._chance.random() < 0.5 else None)
            if self._chance.random() < 0.5 and kind != "long":
                self._tell(await self._director.wait(job.id))
            else:
                await asyncio.sleep(0.01)  # more are begun than ended: every kill finds work in every stage

    async def submit(self, kind: str, n: int, key: str | None) -> Job:
        if key is not None:
            self._diary.note("try", key, kind, n)
        job = await self._director.submit(kind, {"n": n}, idempotency_key=key)
        self._diary.note("ack", job.id, kind, n, key or "-")
        return job

    def _tell(self, job: Job) -> None:
        if job.status.settled:
            self._diary.note("end", job.id, job.status, json.dumps(job.result))


async def drained(store: Path) -> None:
    """Until no job lives, as the file itself says it."""
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        # Another process's view of the file has no event to wait for.
        while connection.execute("SELECT count(*) FROM jobs WHERE live").fetchone()[0]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    finally:
        connection.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("diary", type=Path)
    parser.add_argument("life", type=int)
    parser.add_argument("replays", type=Path)
    parser.add_argument("--drain", action="store_true")
    asked = parser.parse_args()
    # Every kill may lose an attempt of the same task: the budget for that must outlast them all.
    config = Config(watcher_interval_s=0.05, lost_budget=1000)
    director = OrchestratorEngine(f"sqlite:{asked.store}", config)
    for blueprint in blueprints():
        director.register_blueprint(blueprint)
    for worker in performers():
        director.add_worker(worker)
    diary = Diary(asked.diary)
    async with director:
        diary.note("ready")
        life = Life(director, diary, asked.life)
        for line in asked.replays.read_text().splitlines():
            key, kind, n = line.split()
            await life.submit(kind, int(n), key)
        if asked.drain:
            await drained(asked.store)
        else:
            await life.live()


if __name__ == "__main__":
    asyncio.run(main())
