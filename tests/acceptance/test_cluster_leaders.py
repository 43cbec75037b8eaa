"""Three orchestrators on one Redis, and the one that does the chores for all goes away, or comes back from the dead."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from regista import Client, EventType
from tests.acceptance.cluster_kit import APP, LEASE_S, Cluster, check_promises, leader_of, soon
from tests.acceptance.edge import Orchestrator
from tests.conftest import require_binary
from tests.redis_server import RedisServer
from tests.support import only

pytestmark = [pytest.mark.timeout(40), pytest.mark.slow]

#: A leader asks every second, for three.
LEADERSHIP_S = 3.0
#: A busy machine is late.
LATE_S = 2.5


class House(NamedTuple):
    redis: RedisServer
    cluster: Cluster

    def leader(self) -> Orchestrator:
        return leader_of(self.redis, self.cluster)

    def others(self, one: Orchestrator) -> list[Orchestrator]:
        return [each for each in self.cluster.all if each is not one]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with RedisServer(require_binary("redis-server"), appendonly=True) as redis:
        cluster = Cluster(tmp_path_factory.mktemp("leaders"), redis.url)
        try:
            cluster.start()
            time.sleep(LEASE_S)  # after a start nobody is lost for one lease
            yield House(redis, cluster)
        finally:
            cluster.stop()
        assert asyncio.run(check_promises(redis.url, APP)) > 5
        assert not cluster.tracebacks()


async def lose_a_worker(house: House, at: Orchestrator, client: Client, queue: str) -> tuple[str, float]:
    """A worker dies with a task in its hands, and another one for the same queue is there; the job, and when."""
    victim = await asyncio.to_thread(house.cluster.worker, at.url, f"{queue}-victim", queue)
    job = await client.submit("work", {"queue": queue, "seconds": 0.5})
    await soon(lambda: len(house.cluster.notes("began", job.id)) == 1, "the task")
    await asyncio.to_thread(house.cluster.dismiss, victim, signal.SIGKILL)
    died = time.monotonic()
    await asyncio.to_thread(house.cluster.worker, at.url, f"{queue}-heir", queue)
    return job.id, died


def test_exactly_one_of_them_leads(house: House) -> None:
    leader = house.leader()

    for _ in range(10):
        assert house.leader() is leader
        time.sleep(0.2)


def test_when_the_leader_is_killed_nothing_is_late_and_the_next_one_buries_the_lost(house: House) -> None:
    leader = house.leader()
    one, other = house.others(leader)

    async def main() -> None:
        async with house.cluster.client(one) as here, house.cluster.client(other) as there:
            nap, late = await here.submit("nap", {"seconds": 2}), await here.submit("late", {"limit": 2})
            began = time.monotonic()
            await asyncio.to_thread(leader.end, signal.SIGKILL)
            job_id, died = await lose_a_worker(house, one, here, "orphaned")

            await there.wait(nap.id, 8)
            assert 1.5 < time.monotonic() - began < 2 + LATE_S
            assert (await there.wait(late.id, 8)).status == "finished"
            assert time.monotonic() - began < 2 + LATE_S
            ended = await there.wait(job_id, 12)
            assert ended.status == "finished"
            assert time.monotonic() - died < LEADERSHIP_S + LEASE_S + 0.5 + LATE_S
            assert len(only(await here.history(job_id), EventType.TASK_LOST)) == 1

    asyncio.run(main())
    assert house.leader() in (one, other)
    leader.start()
    leader.greet()


def test_a_leader_that_was_frozen_past_its_lease_does_no_harm_when_it_wakes_up(house: House) -> None:
    leader = house.leader()
    one, other = house.others(leader)
    assert leader.process is not None
    pid = leader.process.pid

    async def main() -> None:
        async with house.cluster.client(one) as here, house.cluster.client(other) as there:
            await asyncio.to_thread(house.cluster.worker, other.url, "alive", "alive")
            kept = await there.submit("work", {"queue": "alive", "seconds": 6})
            await asyncio.to_thread(house.cluster.worker, leader.url, "stuck", "stuck")
            cut_off = await there.submit("work", {"queue": "stuck", "seconds": 1.5})
            for job in (kept, cut_off):
                await soon(lambda job_id=job.id: bool(house.cluster.notes("began", job_id)), "the task")  # type: ignore[misc]
            os.kill(pid, signal.SIGSTOP)
            lost, _ = await lose_a_worker(house, one, here, "doubted")
            timers = [await here.submit("nap", {"seconds": n / 10}) for n in range(30, 50, 2)]
            await soon(lambda: house.leader() is not leader, "another leader")
            await asyncio.sleep(2.0)
            os.kill(pid, signal.SIGCONT)  # in the middle of what the other one does

            for job in (*timers, kept):
                assert (await there.wait(job.id, 10)).status == "finished"
            assert (await here.wait(lost, 10)).status == "finished"
            assert only(await here.history(kept.id), EventType.TASK_LOST) == []
            assert len(only(await here.history(lost), EventType.TASK_LOST)) == 1
            assert len(house.cluster.notes("began", kept.id)) == 1
            # Whoever was connected to it has lost its task with its lease, and comes back for it. It may lose it twice:
            # before the woken one hears that the session is over, it may offer the task to that connection again.
            assert (await there.wait(cut_off.id, 10)).status == "finished"
            assert len(only(await here.history(cut_off.id), EventType.TASK_LOST)) in (1, 2)
            for job in timers:
                assert len(only(await here.history(job.id), EventType.TIMER_FIRED)) == 1

    try:
        asyncio.run(main())
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "stalled" in house.cluster.logs()  # it knows that it was away
