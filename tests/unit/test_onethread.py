import asyncio
import threading
import time
from contextvars import ContextVar

import pytest
import uvloop

from regista.onethread import HAND_OVER_AFTER_S, OneThread
from tests.stopwatch import Stopwatch


def test_work_is_done_in_the_order_asked() -> None:
    async def body() -> list[int]:
        thread, done = OneThread("test"), list[int]()
        await asyncio.gather(*(thread.run(lambda n=n: done.append(n)) for n in range(20)))  # type: ignore[misc]
        thread.close()
        return done

    assert asyncio.run(body()) == list(range(20))


async def test_an_error_reaches_who_asked() -> None:
    thread = OneThread("test")
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    assert await thread.run(lambda: "and on it goes") == "and on it goes"
    thread.close()


def test_who_asked_goes_on_in_the_turn_in_which_the_answer_comes() -> None:
    async def body() -> list[str]:
        loop, thread, heard = asyncio.get_running_loop(), OneThread("test"), list[str]()

        def dawdle() -> None:
            time.sleep(0.05)  # the answer is there by now
            loop.call_soon(heard.append, "a turn later")

        def work() -> None:
            loop.call_soon_threadsafe(dawdle)

        await thread.run(work)
        heard.append("answered")
        await asyncio.sleep(0.01)
        thread.close()
        return heard

    assert asyncio.run(body()) == ["answered", "a turn later"]


def test_who_is_cancelled_hears_so_at_once_and_the_work_is_done_all_the_same() -> None:
    async def body() -> list[str]:
        thread, begun, go_on, done = OneThread("test"), threading.Event(), threading.Event(), list[str]()

        def work() -> None:
            begun.set()
            go_on.wait()
            done.append("done")

        asking = asyncio.create_task(thread.run(work))
        await asyncio.sleep(0)
        begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not done
        go_on.set()
        assert await thread.run(lambda: "next") == "next"
        thread.close()
        return done

    assert asyncio.run(body()) == ["done"]


def test_who_asks_keeps_the_variables_of_its_context() -> None:
    about: ContextVar[str] = ContextVar("about")

    async def body() -> str:
        thread = OneThread("test")

        async def ask() -> str:
            about.set("mine")
            await thread.run(lambda: None)
            return about.get()

        said = await asyncio.create_task(ask())
        thread.close()
        return said

    assert asyncio.run(body()) == "mine"


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


async def test_nothing_ticks_when_nothing_is_under_way() -> None:
    thread = OneThread("test")
    await asyncio.gather(*(thread.run(lambda: time.sleep(0.005)) for _ in range(3)))
    await asyncio.sleep(2 * HAND_OVER_AFTER_S)
    assert thread._timer is None
    thread.close()
