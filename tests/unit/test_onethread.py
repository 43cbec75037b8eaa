import asyncio
import time

import pytest
import uvloop

from regista.onethread import OneThread
from tests.stopwatch import Stopwatch


def test_work_is_done_in_the_order_asked() -> None:
    async def body() -> list[int]:
        thread, done = OneThread("test"), list[int]()
        await asyncio.gather(*(thread.run(lambda n=n: done.append(n)) for n in range(20)))  # type: ignore[misc]
        thread.close()
        return done

    assert asyncio.run(body()) == list(range(20))


def test_an_error_reaches_who_asked() -> None:
    async def body() -> None:
        thread = OneThread("test")
        with pytest.raises(ZeroDivisionError):
            await thread.run(lambda: 1 // 0)
        assert await thread.run(lambda: "and on it goes") == "and on it goes"
        thread.close()

    asyncio.run(body())


@pytest.mark.parametrize("turn_s", [0.000_05, 0.000_1, 0.000_5, 0.002])
def test_a_busy_loop_does_not_starve_the_thread(turn_s: float) -> None:
    """Whatever the length of its turns: between two of them it lets go of the GIL, too shortly for anybody to take it."""

    async def keep_busy() -> None:
        while True:
            until = time.perf_counter() + turn_s
            while time.perf_counter() < until:
                pass
            await asyncio.sleep(0)

    def give_up_the_gil_often() -> None:
        for _ in range(20):
            time.sleep(0)

    async def body() -> float:
        thread, busy = OneThread("test"), asyncio.create_task(keep_busy())
        watch = Stopwatch()
        await thread.run(give_up_the_gil_often)
        took = watch.elapsed_s()
        busy.cancel()
        thread.close()
        return took

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as orchestrators run
        assert runner.run(body()) < 0.5


def test_nothing_ticks_when_nothing_is_under_way() -> None:
    async def body() -> None:
        thread = OneThread("test")
        await asyncio.gather(*(thread.run(lambda: time.sleep(0.005)) for _ in range(3)))
        assert thread._timer is None
        thread.close()

    asyncio.run(body())
