"""The loader: submits jobs to any orchestrator, through every outage, and remembers what it was promised."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from regista.client import Client
from regista.errors import ApiError, OrchestratorStopped, RegistaError, StorageOutcomeUnknown, Unreachable
from regista.schemas.jobs import JobObject
from tests.chaos.cluster_app import KINDS

T = TypeVar("T")

#: Jobs that are waited for in one request.
_WINDOW = 500
#: What says nothing about the job: another orchestrator may know better.
_TROUBLE = (Unreachable, OrchestratorStopped, StorageOutcomeUnknown)


@dataclass(frozen=True)
class Promise:
    """A job that was acknowledged, and when."""

    kind: str
    n: int
    at: float


@dataclass(frozen=True)
class End:
    """What a waiter was told, and when."""

    status: str
    result: object
    at: float


class Loader:
    """Speaks with several orchestrators, one client library each: whoever does not answer is left for another."""

    def __init__(self, clients: Sequence[Client], seed: int) -> None:
        self._clients = clients
        self._chance = random.Random(f"{seed} loader")
        self._count = 0
        self._unapproved: deque[str] = deque()
        #: By id.
        self.acknowledged: dict[str, Promise] = {}
        self.ends: dict[str, End] = {}
        #: How often an orchestrator was left for another.
        self.moves = 0

    @property
    def pending(self) -> list[str]:
        """The ids of those that have not ended, oldest first."""
        return [job_id for job_id in self.acknowledged if job_id not in self.ends]

    async def submit_until(self, stop: asyncio.Event, rate: float) -> None:
        """About so many jobs per second, while somebody answers."""
        while not stop.is_set():
            self._count += 1
            n, kind = self._count, self._chance.choices(list(KINDS), list(KINDS.values()))[0]
            job = await self._submit(kind, n)
            assert job.id not in self.acknowledged, "one id for two keys"
            self.acknowledged[job.id] = Promise(kind, n, time.monotonic())
            if kind == "ask":
                self._unapproved.append(job.id)
            await asyncio.sleep(self._chance.uniform(0, 2 / rate))

    async def submit_again(self, many: int) -> None:
        """Some of the keys once more: the same jobs are the answer."""
        for job_id, old in self._chance.sample(sorted(self.acknowledged.items()), many):
            assert (await self._submit(old.kind, old.n)).id == job_id, "one key, two jobs"

    async def _submit(self, kind: str, n: int) -> JobObject:
        key = f"chaos-{n}"
        return await self._ask(lambda client: client.submit(kind, {"n": n}, idempotency_key=key))

    async def follow_until(self, stop: asyncio.Event) -> None:
        """Wait for whatever has not ended, at one orchestrator after the other, and note how it ended."""
        while not stop.is_set():
            await asyncio.sleep(0.1)
            if pending := self.pending[:_WINDOW]:
                await self._ask(lambda client, ids=pending: self._follow(client, ids))  # type: ignore[misc]

    async def _follow(self, client: Client, job_ids: Sequence[str]) -> None:
        async for job in client.wait_many(job_ids, timeout_s=1.0):
            self.ends.setdefault(job.id, End(job.status, job.result, time.monotonic()))

    async def approve_until(self, stop: asyncio.Event) -> None:
        """Say yes to every question. One that is not asked yet is come back to."""
        while not stop.is_set():
            await asyncio.sleep(0.1)
            if self._unapproved:
                job_id = self._unapproved.popleft()
                if not await self._ask(lambda client, id=job_id: _approve(client, id)):  # type: ignore[misc]
                    self._unapproved.append(job_id)

    async def until_all_ended(self, timeout_s: float) -> None:
        """Return when they have, or when the time is up: `pending` tells."""
        end = time.monotonic() + timeout_s
        while self.pending and time.monotonic() < end:  # noqa: ASYNC110  # a few looks cost nothing
            await asyncio.sleep(0.1)

    async def explain(self, job_id: str) -> str:
        """All that an orchestrator knows about a job that does not end."""

        async def look(client: Client) -> str:
            job, why, events = (
                await client.get(job_id),
                await client.explain(job_id),
                await client.history(job_id),
            )
            return "\n  ".join([f"{self.acknowledged[job_id]} {job}", str(why), *map(str, events)])

        return await self._ask(look)

    async def _ask(self, call: Callable[[Client], Awaitable[T]]) -> T:
        while True:
            try:
                return await call(self._chance.choice(self._clients))
            except _TROUBLE:
                pass
            except ApiError as error:
                if error.status < 500:
                    raise
            self.moves += 1
            await asyncio.sleep(0.1)


async def _approve(client: Client, job_id: str) -> bool:
    """Whether that is done."""
    try:
        await client.approve(job_id)
    except _TROUBLE:
        raise
    except RegistaError:
        return (await client.get(job_id)).status == "finished"
    return True
