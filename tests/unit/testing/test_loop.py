"""The virtual loop: time is a number, and nothing depends on the machine."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from regista.testing.clock import BEGINNING, LoopClock
from regista.testing.loop import Deadlock, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_a_year_of_sleep_takes_no_time(loop: VirtualLoop) -> None:
    began = time.perf_counter()
    loop.run_until_complete(asyncio.sleep(366 * 86_400))
    assert loop.time() == 366 * 86_400
    assert time.perf_counter() - began < 1


def test_timers_fire_in_the_order_of_their_instants_and_then_of_their_making(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def note(name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        seen.append(f"{name}@{loop.time():g}")

    async def main() -> None:
        await asyncio.gather(note("c", 3), note("a", 1), note("b", 1), note("d", 2))

    loop.run_until_complete(main())
    assert seen == ["a@1", "b@1", "d@2", "c@3"]


def test_what_would_run_in_a_thread_runs_in_place(loop: VirtualLoop) -> None:
    import threading

    async def main() -> int:
        assert await asyncio.to_thread(threading.get_ident) == threading.get_ident()
        return await loop.run_in_executor(None, lambda: 7)

    assert loop.run_until_complete(main()) == 7


def test_an_error_in_place_of_a_thread_reaches_whoever_awaits(loop: VirtualLoop) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 / 0)

    loop.run_until_complete(main())


def test_waiting_for_what_can_never_happen_is_a_deadlock_and_not_a_hang(loop: VirtualLoop) -> None:
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())


def test_quiet_returns_when_nothing_more_can_happen_at_this_instant(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def chain() -> None:
        for step in range(5):
            await asyncio.sleep(0)
            seen.append(f"step {step}")
        await asyncio.sleep(1)
        seen.append("later")

    async def main() -> None:
        task = asyncio.ensure_future(chain())
        await loop.quiet()
        assert seen == [f"step {step}" for step in range(5)]
        assert loop.time() == 0
        await task

    loop.run_until_complete(main())


def test_quiet_returns_where_otherwise_there_would_be_a_deadlock(loop: VirtualLoop) -> None:
    loop.run_until_complete(loop.quiet())
    assert loop.time() == 0


def test_timeouts_count_virtual_seconds(loop: VirtualLoop) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.sleep(3601)

    loop.run_until_complete(main())
    assert loop.time() == 3600


def test_closing_ends_what_still_runs(loop: VirtualLoop) -> None:
    ended: list[bool] = []

    async def for_ever() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append(True)

    async def main() -> None:
        asyncio.ensure_future(for_ever())  # noqa: RUF006 - the loop itself has to find it
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    loop.close()
    loop.close()
    assert ended == [True]


def test_a_loop_clock_follows_its_loop_and_may_be_set_wrong(loop: VirtualLoop) -> None:
    right, wrong = LoopClock(loop), LoopClock(loop, skew_s=60)
    loop.run_until_complete(asyncio.sleep(5))
    assert (right.now() - BEGINNING).total_seconds() == 5
    assert (wrong.now() - right.now()).total_seconds() == 60
    assert right.elapsed() == wrong.elapsed() == 5
