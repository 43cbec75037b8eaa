import asyncio

import pytest

from regista.aio import resolve, wait_or_timeout


async def test_wait_ends_when_resolved_or_timed_out() -> None:
    loop = asyncio.get_running_loop()
    resolved, unresolved, unlimited = loop.create_future(), loop.create_future(), loop.create_future()
    loop.call_soon(resolve, resolved)
    loop.call_later(0.02, resolve, unlimited)
    await wait_or_timeout(resolved, 60.0)
    await wait_or_timeout(unresolved, 0.01)
    await wait_or_timeout(unlimited, None)
    resolve(resolved)  # once more is fine
    assert all(waiter.done() for waiter in (resolved, unresolved, unlimited))


async def test_an_error_and_a_cancellation_reach_the_waiting_task() -> None:
    loop = asyncio.get_running_loop()
    failed = loop.create_future()
    loop.call_soon(failed.set_exception, ValueError("no more"))
    with pytest.raises(ValueError, match="no more"):
        await wait_or_timeout(failed, 60.0)
    waiting = loop.create_task(wait_or_timeout(loop.create_future(), 60.0))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
