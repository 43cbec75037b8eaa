"""RollCall: that idle workers are there is written down for many of them at once, a moment after they have said so."""

import asyncio
import logging
from typing import TYPE_CHECKING

from ..dispatch.connected import ConnectedWorker
from ..errors import StorageOutcomeUnknown
from ..workers.service import WorkerService

if TYPE_CHECKING:
    from .worker_stream import Channel

log = logging.getLogger("regista.stream")

#: How long a beat waits for others, at most, and as a share of the lease that it renews.
_PATIENCE_S = 0.05
_SHARE = 0.01
#: Beats that are answered before others may have the loop.
_AT_ONCE = 200


class RollCall:
    """Renews the leases of idle workers, and answers them.

    Whoever has a task after all, by the store's word or by that of its seat, and whoever is not known (any more), is heard
    like any other beat: by the stream's own task, in its turn.
    """

    def __init__(self, workers: WorkerService, lease_s: float) -> None:
        self._workers = workers
        self._patience_s = min(_PATIENCE_S, lease_s * _SHARE)
        #: Whoever has said so, and `since` when that beat may have been written.
        self._noted: list[tuple[Channel, ConnectedWorker, float]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None

    def note(self, channel: "Channel", connected: ConnectedWorker, since: float) -> None:
        """The worker is there, and idle."""
        self._noted.append((channel, connected, since))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._patience_s, self._begin)

    async def stop(self) -> None:
        """Answer nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)

    def _begin(self) -> None:
        self._answering = asyncio.get_running_loop().create_task(self._answer_all(), name="roll-call")

    async def _answer_all(self) -> None:
        try:
            while self._noted:
                some, self._noted = self._noted[:_AT_ONCE], self._noted[_AT_ONCE:]
                await self._answer(some)
                if self._noted:
                    await asyncio.sleep(0)
        except Exception:
            log.exception("some beats are not answered; the next ones are")
        finally:
            self._timer = self._answering = None

    async def _answer(self, noted: "list[tuple[Channel, ConnectedWorker, float]]") -> None:
        try:
            renewed = await self._workers.renew([connected for _, connected, _ in noted])
        except StorageOutcomeUnknown:  # each of them meets the same, and knows what to do about it
            renewed = [False] * len(noted)
        except Exception:
            log.exception(
                "the roll call failed; every beat is heard by itself", extra={"action": "roll_call"}
            )
            renewed = [False] * len(noted)
        for (channel, _, since), is_all in zip(noted, renewed, strict=True):
            if is_all:
                channel.answer()
            else:
                channel.hear_later(since)
