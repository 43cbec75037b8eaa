"""The stage under real trouble: processes killed, frozen and cut off, under load. Then the promises."""

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from regista import EventType, JobStatus
from regista.client import Client
from regista.config import Connection
from regista.testing import invariants
from tests.chaos.files import Files
from tests.chaos.kill9_child import KINDS, blueprints, expected_result
from tests.chaos.troupe import TOKENS, Troupe

#: Three minutes is the figure of record (`make chaos`); less is enough to see that nothing has broken.
SECONDS = float(os.environ.get("CHAOS_SECONDS", "40"))
SEED = int(os.environ.get("CHAOS_SEED", "20261115"))
SUBMITTERS = 6
#: Jobs of each submitter per second, about.
RATE = 15.0


class Audience:
    """Submits without pause, through every outage, and remembers what it was promised."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client = client
        self._chance = random.Random(seed)
        self._count = 0
        #: id → (blueprint, n)
        self.acknowledged: dict[str, tuple[str, int]] = {}
        self.ends: dict[str, tuple[str, object]] = {}

    async def submit_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._count += 1
            n, kind = self._count, self._chance.choices(list(KINDS), list(KINDS.values()))[0]
            job = await self._client.submit(kind, {"n": n}, idempotency_key=f"chaos-{n}")
            assert job.id not in self.acknowledged, "one id for two keys"
            self.acknowledged[job.id] = (kind, n)
            await asyncio.sleep(self._chance.uniform(0, 2 / RATE))

    async def wait_for_all(self, timeout_s: float) -> None:
        async for job in self._client.wait_many(list(self.acknowledged), timeout_s=timeout_s):
            self.ends[job.id] = (job.status, job.result)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(SECONDS + 240)
def test_every_job_ends_once_while_processes_are_killed_frozen_and_cut_off(tmp_path: Path) -> None:
    troupe, audience = asyncio.run(_play(tmp_path))

    files = Files.read(troupe.store)
    _print_figures(troupe, audience, files)
    assert all(troupe.fired[trick] for trick in _TRICKS), troupe.fired
    assert audience.acknowledged.keys() == audience.ends.keys(), "a job did not end"
    assert audience.acknowledged.keys() <= files.jobs.keys(), "an acknowledged job is gone"
    for job_id, (kind, n) in audience.acknowledged.items():
        job = files.jobs[job_id]
        assert job.status is JobStatus.FINISHED, f"{job_id} of {kind}: {job.status} {job.error}"
        assert (job.blueprint, job.result) == (kind, expected_result(kind, n))
        assert audience.ends[job_id] == (job.status, job.result), "a waiter was told something else"
    assert not files.live
    graphs = {(blueprint.name, blueprint.version): blueprint.graph for blueprint in blueprints()}
    invariants.check_history(graphs, files.events, files.jobs)
    for name in ("director", *(f"worker-{number}" for number in range(3))):
        assert "Traceback" not in troupe.log_of(name), f"the log of {name} has a traceback"


_TRICKS = ("kill_director", "restart_director", "kill_worker", "freeze_worker", "cut_line", "close_line")


async def _play(folder: Path) -> tuple[Troupe, Audience]:
    troupe = Troupe(folder, SEED)
    connection = Connection(url=troupe.url, token=TOKENS["CLIENT_TOKEN"], timeout_s=60)
    async with Client(connection=connection, first_contact_s=60) as client:
        audience = Audience(client, SEED)
        await troupe.start()
        try:
            stop = asyncio.Event()
            submitters = [asyncio.create_task(audience.submit_until(stop)) for _ in range(SUBMITTERS)]
            await troupe.trouble(SECONDS)
            stop.set()
            await asyncio.gather(*submitters)
            began = time.monotonic()
            await audience.wait_for_all(90)
            print(f"\nall over {time.monotonic() - began:.1f} s after the last trick")
        finally:
            await troupe.stop()
    return troupe, audience


def _print_figures(troupe: Troupe, audience: Audience, files: Files) -> None:
    kinds = Counter(event.type for events in files.events.values() for event in events)
    tricks = ", ".join(f"{count} x {trick}" for trick, count in sorted(troupe.fired.items()))
    print(
        f"{SECONDS:.0f} s of trouble, seed {SEED}: {tricks}; {len(audience.acknowledged)} jobs acknowledged, "
        f"{len(files.jobs)} stored (children too), all ended; {kinds[EventType.TASK_LOST]} attempts lost, "
        f"{kinds[EventType.TASK_UNDELIVERED]} undelivered, {kinds[EventType.TASK_RETRIED]} retried, "
        f"{sum(kinds.values())} events without a gap"
    )
