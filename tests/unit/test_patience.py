import asyncio

import pytest

from regista.patience import wake, woken


async def test_a_word_ends_the_wait_and_so_does_the_time() -> None:
    loop = asyncio.get_running_loop()
    told, untold, patient = loop.create_future(), loop.create_future(), loop.create_future()
    loop.call_soon(wake, told)
    loop.call_later(0.02, wake, patient)
    await woken(told, 60.0)
    await woken(untold, 0.01)
    await woken(patient, None)
    wake(told)  # once more is fine
    assert all(waiter.done() for waiter in (told, untold, patient))


async def test_an_error_and_a_cancellation_reach_who_waits() -> None:
    loop = asyncio.get_running_loop()
    failed = loop.create_future()
    loop.call_soon(failed.set_exception, ValueError("no more"))
    with pytest.raises(ValueError, match="no more"):
        await woken(failed, 60.0)
    waiting = loop.create_task(woken(loop.create_future(), 60.0))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
