"""Ears: the simulated receiver of webhooks. What it hears must be so, and of every end it must hear."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ..model import Job
from ..model.delivery import WEBHOOK_COLLECTION, delivery_of
from ..storage.codec import decode_job
from ..webhooks.base import DeliveryResult
from .invariants import InvariantBroken

if TYPE_CHECKING:
    from .instance import Line
    from .world import World

#: Where the jobs tell that do.
URL = "https://ears.example.com"
#: Chance, while it storms, that the receiver says that it cannot hear now; and that its answer is lost.
_DEAF, _LOST = 0.1, 0.1
#: Virtual seconds until whatever failed in the storm has been tried again.
_PATIENCE_S = 2000


class Ears:
    """Hears what any instance tells. Told twice is fine; told before it is durable, or never, is not."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._heard: set[tuple[str, str]] = set()

    def of(self, line: "Line") -> "Post":
        """How one instance tells it."""
        return Post(self, line)

    async def hear(self, body: bytes) -> DeliveryResult:
        """One request: late, refused, heard, or heard and not known to be."""
        world = self._world
        await asyncio.sleep(world.chance.uniform(0.001, 0.2))
        if world.stormy and world.chance.random() < _DEAF:
            world.count("deaf receiver")
            return DeliveryResult(status=503, error="answered 503")
        said = msgspec.json.decode(body)
        row = world.disk.jobs.get(said["job_id"])
        if row is None or decode_job(row.body).revision < said["sequence"]:
            raise world.fatal(4, said["job_id"], f"{said['event']} was told before it was durable")
        self._heard.add((said["job_id"], said["event"]))
        world.note(f"told {said['id']} {said['event']}")
        if world.stormy and world.chance.random() < _LOST:
            world.count("lost answer of a receiver")
            return DeliveryResult(error="no answer")
        return DeliveryResult(status=204)

    async def check(self, jobs: dict[str, Job]) -> None:
        """1: the end of every job that has a webhook was told; where nobody is left to tell it, it lies on the shelf."""
        for _ in range(_PATIENCE_S):
            waiting = await self._world.store.records(WEBHOOK_COLLECTION, limit=1000)
            if not waiting or not any(instance.alive for instance in self._world.instances.values()):
                break
            await asyncio.sleep(1.0)
        durable = {delivery_of(item).job.id for item in waiting}
        for job in jobs.values():
            if job.webhook_url is None or job.parent_id is not None or not job.status.terminal:
                continue
            if (job.id, f"job_{job.status}") not in self._heard and job.id not in durable:
                raise InvariantBroken(1, job.id, f"ended as {job.status}, and its webhook never heard of it")


class Post:
    """The line from one instance to the receiver; gone with the instance."""

    def __init__(self, ears: Ears, line: "Line") -> None:
        self._ears = ears
        self._line = line

    async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> DeliveryResult:
        if self._line.dead:
            raise asyncio.CancelledError
        return await self._ears.hear(body)

    async def stop(self) -> None:
        return None
