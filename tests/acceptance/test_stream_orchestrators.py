"""One worker, several orchestrators."""

import asyncio
from typing import Any

import pytest

from regista import JobStatus, MemoryStorage
from regista.model import AttemptState
from regista.worker import Worker
from tests.acceptance.stream_kit import House, connected, play, until
from tests.proxy import Proxy
from tests.support import fan_out


def test_failover_works_for_the_first_that_answers_and_goes_back_to_it() -> None:
    worker = Worker("w")
    worker.task("work")(lambda params: {"n": 1})

    async def main() -> None:
        first, second = House(), House()
        async with first, second, connected(worker, first.url, second.url) as remote:
            assert remote.transports() == {first.url: "stream", second.url: "standby"}
            assert (await first.run()).status is JobStatus.FINISHED
            await first.close()
            await until(lambda: remote.transports()[second.url] == "stream")
            assert (await second.run()).status is JobStatus.FINISHED
            await first.open()
            await until(lambda: remote.transports() == {first.url: "stream", second.url: "standby"}, 5)
            assert (await first.run()).status is JobStatus.FINISHED

    play(main())


def test_going_back_a_worker_still_delivers_what_the_second_gave() -> None:
    worker = Worker("w")
    release = asyncio.Event()

    @worker.task("work")
    async def work(params: dict[str, Any]) -> str:
        await release.wait()
        return "done"

    async def main() -> None:
        first, second = House(), House()
        async with first:
            pass
        async with second, connected(worker, first.url, second.url) as remote:
            job = await second.submit()
            await until(lambda: len(remote.held()) == 1)
            async with first:
                await until(lambda: remote.transports()[first.url] == "stream")
                release.set()
                assert (await first.run()).status is JobStatus.FINISHED
                assert (await second.wait(job)).status is JobStatus.FINISHED
                await until(lambda: remote.transports()[second.url] == "standby")

    play(main())


class Shared(MemoryStorage):
    """A store that outlives whoever stops first."""

    async def stop(self) -> None:
        return None


@pytest.mark.parametrize("streams", [None, False], ids=["stream", "poll"])
def test_between_orchestrators_of_one_store_a_worker_moves_with_what_it_has(streams: bool | None) -> None:
    worker = Worker("w")
    release, runs = asyncio.Event(), 0

    @worker.task("work")
    async def work(params: dict[str, Any]) -> str:
        nonlocal runs
        runs += 1
        await release.wait()
        return "done"

    async def main() -> None:
        store = Shared()
        first, second = House(storage=store, instance_id="i1"), House(storage=store, instance_id="i2")
        at_the_first = {first.url: "stream" if streams is None else "poll", second.url: "standby"}
        async with second, connected(worker, first.url, second.url, enable_websockets=streams) as remote:
            job = await second.submit()
            await until(lambda: len(remote.held()) == 1)
            async with asyncio.timeout(5):
                while (await store.tasks_of(job.id))[0].state is not AttemptState.STARTED:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)  # written down, so that losing it would be seen
            # when: its first choice comes back while it is at work
            async with first:
                await until(lambda: remote.transports() == at_the_first)
                (moved,) = await store.workers()
                # then: it goes there, stays there, and brings what it has
                await asyncio.sleep(1.5)
                assert remote.transports() == at_the_first
                (known,) = await store.workers()
                assert known.session == moved.session
                release.set()
                assert (await first.wait(job)).status is JobStatus.FINISHED
                assert "task_lost" not in await first.events(job)
                assert runs == 1

    play(main())


@pytest.mark.parametrize("streams", [None, False], ids=["stream", "poll"])
def test_round_robin_works_for_both_and_never_does_more_than_it_can(streams: bool | None) -> None:
    worker = Worker("w", concurrency=4)
    now, most, held_most = 0, 0, 0

    @worker.task("work")
    async def work(params: dict[str, Any]) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1

    async def main() -> None:
        nonlocal held_most
        first, second = House(fan_out(20)), House(fan_out(20))
        async with first, second:
            mode: dict[str, Any] = {"multi_orchestrator_mode": "ROUND_ROBIN", "enable_websockets": streams}
            async with connected(worker, first.url, second.url, **mode) as remote:
                await until(lambda: all(remote.transports().values()))
                jobs = [await first.submit(), await second.submit()]
                waits = [
                    asyncio.create_task(first.wait(jobs[0], 8)),
                    asyncio.create_task(second.wait(jobs[1], 8)),
                ]
                while not all(wait.done() for wait in waits):
                    held_most = max(held_most, remote.load())
                    await asyncio.sleep(0.001)
                assert [wait.result().status for wait in waits] == [JobStatus.FINISHED] * 2

    play(main())
    assert (most, held_most) == (4, 4)


def test_round_robin_an_idle_orchestrator_does_not_keep_the_slots_from_a_busy_one() -> None:
    worker = Worker("w", concurrency=8)
    now, most = 0, 0

    @worker.task("work")
    async def work(params: dict[str, Any]) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.15)
        now -= 1

    async def main() -> None:
        busy, idle = House(fan_out(100)), House()
        async with busy, idle:
            mode: dict[str, Any] = {"multi_orchestrator_mode": "ROUND_ROBIN"}
            async with connected(worker, busy.url, idle.url, **mode) as remote:
                await until(lambda: all(remote.transports().values()))
                job = await busy.submit()
                await until(lambda: most >= 7)
                assert (await idle.run(timeout_s=3)).status is JobStatus.FINISHED
                assert (await busy.wait(job)).status is JobStatus.FINISHED

    play(main())


def test_round_robin_one_that_is_slow_to_answer_leaves_the_slots_to_a_busy_one() -> None:
    worker = Worker("w", concurrency=4)
    worker.task("work")(lambda params: None)

    async def main() -> None:
        busy, idle = House(fan_out(20)), House()
        async with idle, Proxy(idle.port) as slow:
            slow.slowness_s = 0.2
            mode: dict[str, Any] = {"multi_orchestrator_mode": "ROUND_ROBIN", "wait": False}
            async with connected(worker, busy.url, slow.url, **mode) as remote:
                await until(lambda: remote.transports()[slow.url] == "poll")
                async with busy:
                    await until(lambda: remote.transports()[busy.url])
                    assert (await busy.run()).status is JobStatus.FINISHED

    play(main())


def test_round_robin_goes_on_with_the_one_that_is_left() -> None:
    worker = Worker("w", concurrency=4)
    worker.task("work")(lambda params: None)

    async def main() -> None:
        first, second = House(fan_out(10)), House(fan_out(10))
        async with (
            first,
            second,
            connected(worker, first.url, second.url, multi_orchestrator_mode="ROUND_ROBIN") as remote,
        ):
            await until(lambda: all(remote.transports().values()))
            await first.close()
            assert (await second.run()).status is JobStatus.FINISHED
            await first.open()
            await until(lambda: all(remote.transports().values()))
            assert (await first.run()).status is JobStatus.FINISHED

    play(main())
