"""The stream over a bad network: cut, stalled, refused, and back again. FENCES 6 and 9 to 12."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from regista import EventType, JobStatus
from regista.sdk.connection import OrchestratorConnection
from regista.testing.invariants import check_history
from regista.worker import RemoteWorker, TaskContext, Worker
from tests.acceptance.stream_kit import QUICK, House, connected, play, until
from tests.proxy import Proxy
from tests.support import fan_out


class Steps:
    """A worker whose task waits for the test, and counts its runs."""

    def __init__(self, **options: Any) -> None:
        self.worker = Worker("w", **options)
        self.runs: list[int] = []
        self.release = asyncio.Event()
        self.worker.task("work")(self._work)

    async def _work(self, params: dict[str, Any], context: TaskContext) -> dict[str, Any]:
        self.runs.append(context.attempt)
        await self.release.wait()
        return {"run": len(self.runs)}


@asynccontextmanager
async def behind_proxy(
    steps: Steps, house: House, wait: bool = True, **settings: Any
) -> AsyncIterator[tuple[Proxy, RemoteWorker]]:
    async with (
        Proxy(house.port) as proxy,
        connected(steps.worker, proxy.url, wait=wait, **settings) as remote,
    ):
        yield proxy, remote


def test_a_task_goes_on_while_its_connection_is_cut_and_is_done_once() -> None:
    async def main() -> None:
        steps = Steps()
        async with House() as house, behind_proxy(steps, house) as (proxy, remote):
            job = await house.submit()
            await until(lambda: steps.runs)
            for _ in range(3):
                proxy.cut()
                await until(lambda: remote.transports() == {proxy.url: ""})
                assert await remote.wait_connected(3)
            steps.release.set()
            ended = await house.wait(job)
            assert (ended.status, steps.runs) == (JobStatus.FINISHED, [1])
            assert EventType.TASK_LOST.value not in await house.events(job)

    play(main())


def test_a_result_that_comes_while_nobody_listens_is_kept_and_accepted_once() -> None:
    async def main() -> None:
        steps = Steps()
        async with House(lease_s=4) as house, behind_proxy(steps, house) as (proxy, remote):
            job = await house.submit()
            await until(lambda: steps.runs)
            proxy.refuse_all = True
            proxy.cut()
            await until(lambda: remote.transports() == {proxy.url: ""})
            steps.release.set()
            await asyncio.sleep(0.2)
            assert len(remote.held()) == 1
            proxy.refuse_all = False
            ended = await house.wait(job)
            assert (ended.data, steps.runs) == ({"run": 1}, [1])
            assert (await house.events(job)).count(EventType.TASK_FINISHED.value) == 1
            await until(lambda: remote.held() == [])

    play(main())


def test_a_lost_acknowledgement_makes_the_worker_say_it_again_and_it_is_accepted_again() -> None:
    async def main() -> None:
        steps = Steps()
        async with House() as house, behind_proxy(steps, house) as (proxy, remote):
            job = await house.submit()
            await until(lambda: steps.runs)
            proxy.deaf = True
            steps.release.set()
            assert (await house.wait(job)).status is JobStatus.FINISHED
            assert len(remote.held()) == 1  # the word is out, and nobody has answered
            proxy.deaf = False
            proxy.cut()
            await until(lambda: remote.held() == [])
            assert (await house.events(job)).count(EventType.TASK_FINISHED.value) == 1

    play(main())


def test_a_task_that_was_on_its_way_when_the_connection_was_cut_is_offered_again() -> None:
    async def main() -> None:
        steps = Steps()
        steps.release.set()
        async with House() as house, behind_proxy(steps, house) as (proxy, _):
            proxy.deaf = True
            job = await house.submit()
            await asyncio.sleep(0.1)
            assert steps.runs == []
            proxy.deaf = False
            proxy.cut()
            ended = await house.wait(job)
            # The same attempt: it had never begun.
            assert (ended.status, steps.runs) == (JobStatus.FINISHED, [1])

    play(main())


def test_a_stream_that_stalls_is_given_up_by_both_ends_and_the_task_goes_on() -> None:
    async def main() -> None:
        steps = Steps()
        async with House(lease_s=1.2) as house, behind_proxy(steps, house) as (proxy, remote):
            await asyncio.sleep(1.3)  # the grace of our own start is over
            job = await house.submit()
            await until(lambda: steps.runs)
            proxy.stall()
            await until(lambda: remote.transports() == {proxy.url: ""}, 4)
            await house.until_event(job, EventType.TASK_LOST, 4)
            proxy.go_on()
            proxy.cut()
            steps.release.set()
            ended = await house.wait(job)
            # The lease was over, so it was done again; of the two results one counts.
            assert (ended.status, steps.runs) == (JobStatus.FINISHED, [1, 2])
            assert (await house.events(job)).count(EventType.TASK_FINISHED.value) == 1

    play(main())


@pytest.mark.timeout(20)
def test_an_orchestrator_that_restarts_mid_task_finds_it_running(tmp_path: Path) -> None:
    async def main() -> None:
        steps = Steps()
        house = House(storage=f"sqlite:{tmp_path}/jobs.db")
        async with house, connected(steps.worker, house.url) as remote:
            job = await house.submit()
            await until(lambda: steps.runs)
            await house.close()
            await asyncio.sleep(0.3)
            await house.open()
            assert await remote.wait_connected(5)
            steps.release.set()
            ended = await house.wait(job)
            assert (ended.data, steps.runs) == ({"run": 1}, [1])
            assert EventType.TASK_LOST.value not in await house.events(job)

    play(main(), 15)


def test_a_result_that_is_ready_while_the_orchestrator_is_away_is_accepted_when_it_is_back(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        steps = Steps()
        house = House(storage=f"sqlite:{tmp_path}/jobs.db")
        async with house, connected(steps.worker, house.url) as remote:
            job = await house.submit()
            await until(lambda: steps.runs)
            await house.close()
            steps.release.set()
            await asyncio.sleep(0.1)
            await house.open()
            assert (await house.wait(job)).data == {"run": 1}
            await until(lambda: remote.held() == [])
            assert steps.runs == [1]

    play(main())


def test_a_result_goes_to_the_store_that_gave_the_task_and_to_no_other() -> None:
    async def main() -> None:
        steps = Steps()
        house = House()  # in memory: the next one at the same address is a stranger
        async with house, connected(steps.worker, house.url) as remote:
            await house.submit()
            await until(lambda: steps.runs)
            (old,) = remote.held()
            await house.close()
            steps.release.set()
            await house.open()
            assert await remote.wait_connected(5)
            assert (await house.run()).status is JobStatus.FINISHED
            # Kept for whoever gave it, and not reported to this one.
            await until(lambda: remote.held() == [old])

    play(main())


# -- long-poll as the fallback -----------------------------------------------------------------------


def test_without_upgrades_the_worker_polls_and_finds_back_to_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OrchestratorConnection, "stream_retry_s", 0.5)

    async def main() -> None:
        steps = Steps(concurrency=2)
        async with House(fan_out(6)) as house, Proxy(house.port) as proxy:
            proxy.refuse_upgrades = True
            async with connected(steps.worker, proxy.url, poll_timeout_s=1.0) as remote:
                assert remote.transports() == {proxy.url: "poll"}
                job = await house.submit()
                await until(lambda: len(steps.runs) == 2)
                proxy.refuse_upgrades = False
                await until(lambda: remote.transports() == {proxy.url: "stream"})
                steps.release.set()
                ended = await house.wait(job)
                assert ended.status is JobStatus.FINISHED
                assert steps.runs == [1] * 6
                happened = await house.events(job)
                assert not {"task_lost", "task_undelivered", "task_retried"} & set(happened)

    play(main())


def test_a_proxy_that_lets_the_upgrade_through_and_swallows_frames_is_polled_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("regista.sdk.transports.stream._OPENING_S", 0.3)

    async def main() -> None:
        steps = Steps()
        steps.release.set()
        async with House() as house, Proxy(house.port) as proxy:
            proxy.swallow_frames = True
            async with connected(steps.worker, proxy.url) as remote:
                assert remote.transports() == {proxy.url: "poll"}
                assert (await house.run()).data == {"run": 1}

    play(main())


def test_with_websockets_off_no_upgrade_is_ever_asked_for() -> None:
    async def main() -> None:
        steps = Steps()
        steps.release.set()
        async with House() as house, behind_proxy(steps, house, enable_websockets=False) as (proxy, _):
            assert (await house.run()).status is JobStatus.FINISHED
            assert proxy.upgrades == 0

    play(main())


def test_a_polling_worker_survives_a_cut_and_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        steps = Steps()
        house = House(storage=f"sqlite:{tmp_path}/jobs.db")
        async with house, behind_proxy(steps, house, enable_websockets=False) as (proxy, remote):
            job = await house.submit()
            await until(lambda: steps.runs)
            proxy.cut()
            await house.close()
            await house.open()
            steps.release.set()
            ended = await house.wait(job)
            assert (ended.data, steps.runs) == ({"run": 1}, [1])
            await until(lambda: remote.held() == [])

    play(main())


# -- all of it at once -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(40)
def test_under_a_storm_of_cuts_every_job_is_done_and_every_promise_kept(tmp_path: Path) -> None:
    """Two workers (one polls) behind networks that are cut ten times a second, and a restart in between."""
    chance = random.Random(7)
    blueprint = fan_out(5, retry=QUICK)

    def busy(name: str) -> Worker:
        worker = Worker(name, concurrency=5)

        @worker.task("work")
        async def work(params: dict[str, Any]) -> int:
            await asyncio.sleep(chance.random() * 0.05)
            return int(params["n"])

        return worker

    async def storm(proxies: list[Proxy], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(0.05 + chance.random() * 0.1)
            chance.choice(proxies).cut()

    async def main() -> None:
        house = House(blueprint, storage=f"sqlite:{tmp_path}/jobs.db", lease_s=3, poll_lease_s=3)
        async with (
            house,
            Proxy(house.port) as one,
            Proxy(house.port) as two,
            connected(busy("one"), one.url) as streams,
            connected(busy("two"), two.url, enable_websockets=False) as polls,
        ):
            jobs = [await house.submit() for _ in range(100)]
            await storm([one, two], 2)
            await house.close()
            await house.open()
            await storm([one, two], 2)
            ended = {job.id: await house.wait(job, 20) for job in jobs}
            assert {job.status for job in ended.values()} == {JobStatus.FINISHED}
            for job in ended.values():
                assert sorted(each["data"] for each in job.data["results"]) == list(range(5))
            events = {job.id: await house.director.events(job.id) for job in jobs}
            check_history({(blueprint.name, blueprint.version): blueprint.graph}, events, ended)
            await until(lambda: streams.held() == polls.held() == [])

    play(main(), 35)
