"""Crowd: the simulated people. Clients who submit, cancel and decide, and an operator who mends."""

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..engines.base import MonthlyQuota, Submission, accepted
from ..errors import (
    ApprovalConflict,
    JobAlreadyTerminal,
    NotQuarantined,
    OrchestratorStopped,
    QuotaExceeded,
    StorageError,
)
from ..model import AwaitHuman, Job, JobStatus, Quota
from ..storage.codec import decode_job
from .ears import URL
from .instance import Instance

if TYPE_CHECKING:
    from .world import World

#: Longer than any run, with all the time that is skipped in it.
_FOR_EVER_S = 1e9


def client_of(number: int) -> str:
    """Whose job this is."""
    return f"client-{number % 3}"


def allowances(jobs: int) -> dict[str, MonthlyQuota]:
    """One client may have as many jobs as it asks for and not one more; one is only counted; one is not."""
    for_ever = datetime.max.replace(tzinfo=UTC)
    exactly = sum(client_of(number) == "client-1" for number in range(jobs))
    return {
        "client-1": MonthlyQuota(Quota("client-1", exactly, _FOR_EVER_S), for_ever),
        "client-2": MonthlyQuota(Quota("client-2", None, _FOR_EVER_S), for_ever),
    }


class Crowd:
    """Everybody who talks to the orchestrators from outside, over a bad network."""

    def __init__(self, world: "World") -> None:
        self._world = world
        #: Releases whose outcome the operator never heard.
        self._unsure: set[str] = set()

    async def client(self, number: int) -> None:
        """Submits one job until it is acknowledged, then watches it to its end."""
        await asyncio.sleep(self._world.chance.uniform(0, self._world.storm_s * 0.8))
        submission = Submission(
            blueprint=self._world.chance.choice(self._world.blueprints[:1]).name,
            input=self._world.make_input(self._world.chance),
            client=client_of(number),
            idempotency_key=f"key-{number}",
            webhook_url=URL if number % 4 == 0 else None,
        )
        allowance = self._world.allowances.get(submission.client)
        try:
            job = await self._ask(lambda director: _submit(director, submission, allowance))
        except QuotaExceeded as refused:
            raise self._world.fatal(6, submission.client, f"too much was counted: {refused}") from None
        self._world.acked[job.id] = submission.blueprint
        self._world.note(f"ack {job.id}")
        cancels = self._world.chance.random() < self._world.faults.cancel
        while not job.status.terminal:
            await asyncio.sleep(self._world.chance.uniform(0.2, 1.0))
            if cancels and self._world.chance.random() < 0.3:
                cancels = False
                await self._cancel(job)
            job = await self._ask(lambda director, id=job.id: director.engine.get(id))  # type: ignore[misc]
            if job.status is JobStatus.WAITING_FOR_HUMAN and isinstance(job.wait, AwaitHuman):
                await self._decide(job, job.wait)
        self._world.note(f"end {job.id} {job.status}")

    async def _ask(self, question: Callable[[Instance], Awaitable[Job]]) -> Job:
        while True:
            try:
                instance = self._world.pick_instance()
                return await self._world.network(instance, functools.partial(question, instance))
            except ConnectionError:
                await asyncio.sleep(0.3)

    async def _cancel(self, job: Job) -> None:
        try:
            await self._ask(lambda director: director.engine.cancel(job.id, "changed my mind"))
        except JobAlreadyTerminal:
            return

    async def _decide(self, job: Job, wait: AwaitHuman) -> None:
        decision = self._world.chance.choice(sorted(wait.transitions))
        try:
            await self._ask(lambda director: director.engine.approve(job.id, decision))
        except ApprovalConflict:
            self._world.note(f"approval of {job.id} came too late")  # somebody cancelled meanwhile

    async def operate(self) -> None:
        """The one person who moves quarantined jobs on."""
        tries: Counter[str] = Counter()
        while not self._world.over:
            await asyncio.sleep(1.0)
            rows = [row for row in self._world.disk.jobs.values() if row.live]
            for job in (decode_job(row.body) for row in rows):
                if job.status is JobStatus.QUARANTINED:
                    tries[job.id] += 1
                    await self._mend(job, tries[job.id])

    async def _mend(self, job: Job, tried: int) -> None:
        give_up = tried > 2 or self._world.chance.random() < 0.3
        try:
            instance = self._world.pick_instance()
            engine = instance.engine
            await (engine.fail(job.id, "given up") if give_up else engine.release(job.id))
        except (StorageError, OrchestratorStopped, asyncio.CancelledError):
            self._unsure.add(job.id)
        except ConnectionError:
            return
        except JobAlreadyTerminal:
            return
        except NotQuarantined:
            (now,), _ = await self._world.store.load([job.id])
            if now is not None and now.cancel is None and job.id not in self._unsure:
                raise self._world.fatal(3, job.id, "a release was applied, but reported as refused") from None


async def _submit(director: Instance, submission: Submission, quota: MonthlyQuota | None) -> Job:
    (answer,) = await director.engine.engine.submit([submission], quota)
    return accepted(answer)
