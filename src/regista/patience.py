"""Patience: waiting for a word that may not come in time."""

import asyncio


async def woken(waiter: "asyncio.Future[None]", timeout_s: float | None) -> None:
    """Return when somebody wakes the waiter, or the time is up; the waiter is done then in any case.

    It must be the caller's own: whoever else waited for it would take the end of our time for a word. That
    spares what `asyncio.wait` needs, which is a second future and a set for each wait.
    """
    if timeout_s is None:
        await waiter
        return
    timer = asyncio.get_running_loop().call_later(timeout_s, wake, waiter)
    try:
        await waiter
    finally:
        timer.cancel()


def wake(waiter: "asyncio.Future[None]") -> None:
    """Let whoever waits go on. Twice is fine."""
    if not waiter.done():
        waiter.set_result(None)
