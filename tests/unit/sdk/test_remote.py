"""The life of a worker that serves orchestrators elsewhere."""

import asyncio
from typing import Any

from regista import JobStatus
from regista.config import WorkerConfig
from regista.worker import RemoteWorker, TaskContext, Worker
from tests.acceptance.stream_kit import House, config_for, play, until


def slow_worker(seconds: float = 0.6) -> Worker:
    worker = Worker("w")

    @worker.task("work")
    async def work(params: dict[str, Any]) -> str:
        await asyncio.sleep(seconds)
        return "done"

    return worker


def test_stop_before_start_and_a_second_stop_are_fine() -> None:
    async def main() -> None:
        remote = RemoteWorker(Worker("w"), WorkerConfig(orchestrator_url="http://127.0.0.1:1"))
        await remote.stop()
        await remote.start()
        await remote.start()
        await remote.stop(0)
        await remote.stop(0)

    play(main())


def test_two_stops_at_once_both_return_when_it_has_truly_stopped() -> None:
    async def main() -> None:
        async with House() as house:
            remote = RemoteWorker(slow_worker(), config_for(house.url))
            await remote.start()
            job = await house.submit()
            await until(remote.load)
            await asyncio.gather(remote.stop(5), remote.stop(5))
            assert not remote.held()
            assert (await house.wait(job)).status is JobStatus.FINISHED

    play(main())


def test_a_second_stop_cuts_the_grace_of_the_first_to_its_own() -> None:
    async def main() -> None:
        async with House() as house:
            remote = RemoteWorker(slow_worker(60), config_for(house.url))
            await remote.start()
            await house.submit()
            await until(remote.load)
            async with asyncio.timeout(4):
                await asyncio.gather(remote.stop(60), remote.stop(0.1))
            assert not remote.held()

    play(main())


def test_a_stop_goes_on_though_nobody_waits_for_it_any_more() -> None:
    async def main() -> None:
        async with House() as house:
            remote = RemoteWorker(slow_worker(), config_for(house.url))
            await remote.start()
            job = await house.submit()
            await until(remote.load)
            waiting = asyncio.create_task(remote.stop(5))
            await asyncio.sleep(0.05)
            waiting.cancel()
            await remote.wait()
            assert (await house.wait(job)).status is JobStatus.FINISHED

    play(main())


def test_a_start_during_a_stop_begins_again_after_it() -> None:
    async def main() -> None:
        async with House() as house:
            remote = RemoteWorker(slow_worker(), config_for(house.url))
            await remote.start()
            await house.submit()
            await until(remote.load)
            stopping = asyncio.create_task(remote.stop(5))
            await asyncio.sleep(0.05)
            await remote.start()
            await stopping
            assert await remote.wait_connected(5)
            assert (await house.run()).status is JobStatus.FINISHED
            await remote.stop(0)

    play(main())


def test_a_worker_may_be_started_again_on_another_loop() -> None:
    worker, house = Worker("w"), House()

    @worker.task("work")
    def work(params: dict[str, Any], context: TaskContext) -> None:
        context.progress(0.5)

    remote = RemoteWorker(worker, config_for(house.url))

    async def main() -> None:
        async with house:
            await remote.start()
            try:
                assert (await house.run()).status is JobStatus.FINISHED
            finally:
                await remote.stop(0)

    for _ in range(2):
        play(main())
