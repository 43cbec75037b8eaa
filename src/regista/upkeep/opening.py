"""Opening: a server that is away when we start is waited for, as a worker waits for its orchestrator."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..errors import StorageUnavailable

log = logging.getLogger("regista")

#: Seconds before the second try, and at most before each further one.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 2.0


async def opened(start: Callable[[], Awaitable[None]], wait_s: float) -> None:
    """Start a part; while its server cannot be reached, try again for `wait_s`, and say so once.

    What is wrong rather than away (credentials, a version, a right) is raised at once, and what is still away when the
    time is up is raised then. A part whose `start` fails must have left nothing open.
    """
    loop = asyncio.get_running_loop()
    give_up, pause_s, told = loop.time() + wait_s, FIRST_PAUSE_S, False
    while True:
        try:
            await start()
            break
        except StorageUnavailable as away:
            left_s = give_up - loop.time()
            if left_s <= 0:
                raise
            if not told:
                _say_that_we_wait(away, wait_s)
            told = True
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, LAST_PAUSE_S)
    if told:
        log.warning("it is there; going on", extra={"action": "store_came"})


def _say_that_we_wait(away: StorageUnavailable, wait_s: float) -> None:
    log.warning(
        "%s; waiting for it, %g s at most (REGISTA_STORE_WAIT_SECONDS)",
        away,
        wait_s,
        extra={"action": "store_awaited"},
    )
