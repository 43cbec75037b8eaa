"""A worker in trouble: with what its functions return, with the line, with its own time. Nothing is lost or stuck."""

import asyncio
import functools
from typing import Any

import msgspec
import pytest

from regista import JobStatus, MemoryStorage, PermanentError
from regista.testing.clock import Clock
from regista.worker import RemoteWorker, TaskContext, Worker
from tests.acceptance.stream_kit import SHORT_LEASE_S, House, config_for, connected, play, until
from tests.proxy import Proxy
from tests.support import fault

BOTH = pytest.mark.parametrize("streams", [None, False], ids=["stream", "poll"])


class NumberedError(PermanentError):
    """Its code is no text, which nobody has told its author."""

    code = 5  # type: ignore[assignment]


def raising(params: dict[str, Any]) -> None:
    raise NumberedError("no")


class Shy:
    """An object that does not want to be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("not me")


def interrupted(params: dict[str, Any]) -> None:
    raise KeyboardInterrupt


ODD = {
    "raw bytes": lambda params: {"x": msgspec.Raw(b"\xc1\xc1")},
    "a code that is no text": raising,
    "an error that cannot be shown": lambda params: {"error": Shy()},
    "a keyboard interrupt": interrupted,
}


@BOTH
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_a_result_that_nobody_can_read_is_a_failure_and_holds_nobody_up(
    streams: bool | None, odd: Any
) -> None:
    worker = Worker("w", concurrency=1)
    worker.task("work")(lambda params: odd(params) if params["odd"] else "fine")

    async def main() -> None:
        async with House() as house, connected(worker, house.url, enable_websockets=streams) as remote:
            jobs = [await house.submit({"odd": odd}) for odd in (True, False)]
            ends = [await house.wait(job) for job in jobs]
            assert [end.status for end in ends] == [JobStatus.QUARANTINED, JobStatus.FINISHED]
            await until(lambda: not remote.held())

    play(main())


@BOTH
def test_a_result_just_too_deep_to_be_read_is_a_failure_whatever_the_depth(streams: bool | None) -> None:
    worker = Worker("w")

    @worker.task("work")
    def work(params: dict[str, Any]) -> list[Any]:
        nest: list[Any] = []
        for _ in range(params["depth"]):
            nest = [nest]
        return nest

    async def main() -> None:
        async with House() as house, connected(worker, house.url, enable_websockets=streams):
            jobs = [await house.submit({"depth": depth}) for depth in range(940, 1000, 4)]
            for job in jobs:
                end = await house.wait(job)
                assert (end.status, fault(end)) == (JobStatus.QUARANTINED, "PERMANENT_ERROR")

    play(main())


# -- checkpoints -------------------------------------------------------------------------------------


@BOTH
def test_the_last_checkpoint_of_many_reaches_the_next_attempt(streams: bool | None) -> None:
    worker, seen = Worker("w"), []

    @worker.task("work")
    async def work(params: dict[str, Any], context: TaskContext) -> None:
        seen.append(context.checkpoint)
        if context.attempt == 1:
            for number in range(50):
                context.progress(number / 50, checkpoint={"at": number})
            context.progress(1.0, "nearly")
            raise ValueError

    async def main() -> None:
        async with House() as house, connected(worker, house.url, enable_websockets=streams):
            assert (await house.run()).status is JobStatus.FINISHED

    play(main())
    assert seen == [None, {"at": 49}]


@BOTH
def test_a_checkpoint_left_while_nobody_listens_reaches_the_next_attempt(streams: bool | None) -> None:
    worker, seen = Worker("w"), []
    go_on = asyncio.Event()

    @worker.task("work")
    async def work(params: dict[str, Any], context: TaskContext) -> None:
        seen.append(context.checkpoint)
        if context.attempt == 1:
            await go_on.wait()
            context.progress(checkpoint="deep")
            raise ValueError

    async def main() -> None:
        async with (
            House() as house,
            Proxy(house.port) as line,
            connected(worker, line.url, enable_websockets=streams) as remote,
        ):
            job = await house.submit()
            await until(lambda: seen)
            line.close_the_line()
            await until(lambda: not remote.transports()[line.url])
            go_on.set()
            await asyncio.sleep(0.1)
            line.open_the_line()
            assert (await house.wait(job)).status is JobStatus.FINISHED

    play(main())
    assert seen == [None, "deep"]


# -- the line ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_where_frames_are_swallowed_a_worker_comes_back_before_its_lease_is_over() -> None:
    worker, tries = Worker("w"), []

    @worker.task("work")
    async def work(params: dict[str, Any], context: TaskContext) -> None:
        tries.append(context.attempt)
        await asyncio.sleep(4)

    async def main() -> None:
        house = House(lease_s=3.0, poll_lease_s=3.0)
        async with house, Proxy(house.port) as line, connected(worker, line.url):
            job = await house.submit()
            await until(lambda: tries)
            line.swallow_frames = True
            line.cut()
            assert (await house.wait(job, 9)).status is JobStatus.FINISHED

    play(main(), 9.5)
    assert tries == [1]


@pytest.mark.slow
def test_a_result_that_takes_longer_than_a_lease_is_delivered_all_the_same() -> None:
    worker, tries = Worker("w"), []

    @worker.task("work")
    async def work(params: dict[str, Any], context: TaskContext) -> str:
        tries.append(context.attempt)
        await asyncio.sleep(0.1)
        return "x" * 3_000_000

    async def main() -> None:
        house = House(lease_s=2.0, poll_lease_s=2.0)
        async with house, Proxy(house.port) as line, connected(worker, line.url):
            line.slowness_s = 0.07  # about a megabyte a second
            job = await house.submit()
            assert (await house.wait(job, 9)).status is JobStatus.FINISHED
            line.slowness_s = 0.0

    play(main(), 9.5)
    assert tries == [1]


# -- time --------------------------------------------------------------------------------------------


def test_the_result_of_a_long_task_is_kept_though_the_task_took_longer_than_results_are_kept() -> None:
    worker, tries, clock = Worker("w"), [], Clock()
    end = asyncio.Event()

    @worker.task("work")
    async def work(params: dict[str, Any], context: TaskContext) -> str:
        tries.append(context.attempt)
        await end.wait()
        return "at last"

    async def main() -> None:
        house = House(storage=MemoryStorage())
        await house.open()
        remote = RemoteWorker(worker, config_for(house.url), clock=clock)
        await remote.start()
        try:
            job = await house.submit()
            await until(lambda: tries)
            clock.move(7200)
            await house.close()
            end.set()
            await asyncio.sleep(1.2)  # it looks through what it keeps every second
            assert remote.held()
            await house.open()
            assert (await house.wait(job)).status is JobStatus.FINISHED
        finally:
            await remote.stop(0)
            await house.close()

    play(main())
    assert tries == [1]


def test_a_cancel_is_said_once_to_a_function_that_cleans_up_for_longer_than_a_beat() -> None:
    worker, notes = Worker("w"), []

    @worker.task("work")
    async def work(params: dict[str, Any]) -> None:
        notes.append("began")
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(SHORT_LEASE_S)
            notes.append("cleaned up")

    async def main() -> None:
        async with House(lease_s=SHORT_LEASE_S) as house, connected(worker, house.url):
            job = await house.submit()
            await until(lambda: notes)
            await house.director.cancel(job.id)
            assert (await house.wait(job)).status is JobStatus.CANCELLED

    play(main())
    assert notes == ["began", "cleaned up"]


def test_an_async_function_behind_a_plain_one_is_cancelled_like_any_other() -> None:
    worker, notes = Worker("w"), []

    async def inner(params: dict[str, Any]) -> None:
        notes.append("began")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            notes.append("cancelled")
            raise

    @worker.task("work")
    @functools.wraps(inner)
    def work(params: dict[str, Any]) -> Any:
        return inner(params)

    async def main() -> None:
        async with House() as house, connected(worker, house.url) as remote:
            job = await house.submit()
            await until(lambda: notes)
            await house.director.cancel(job.id)
            assert (await house.wait(job)).status is JobStatus.CANCELLED
            await until(lambda: not remote.load())

    play(main())
    assert notes == ["began", "cancelled"]
