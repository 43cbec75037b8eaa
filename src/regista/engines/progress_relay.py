"""ProgressRelay: sends the progress of attempts to the other instances of a store. It is not stored."""

import asyncio
import logging

import msgspec

from ..errors import StorageOutcomeUnknown
from ..storage.base import Hint, HintKind, StorageBackend

log = logging.getLogger("regista.feed")

#: Seconds for which updates are collected; only the newest of each attempt is sent.
_EVERY_S = 0.1

_encode = msgspec.json.Encoder().encode


class ProgressUpdate(msgspec.Struct, frozen=True, array_like=True):
    """The progress of an attempt, and the instance that its worker is connected to."""

    instance: str
    attempt_id: str
    value: float | None
    message: str


_decode = msgspec.json.Decoder(ProgressUpdate).decode


class ProgressRelay:
    """Collects progress and publishes it, where the store is shared. Elsewhere it does nothing."""

    def __init__(self, storage: StorageBackend, instance: str) -> None:
        self._storage = storage
        self._instance = instance
        self._updates: dict[str, ProgressUpdate] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def publish(self, attempt_id: str, value: float | None, message: str) -> None:
        """Progress of an attempt whose worker is connected here."""
        if not self._storage.shared:
            return
        self._updates[attempt_id] = ProgressUpdate(self._instance, attempt_id, value, message)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._send)

    def decode(self, text: str) -> ProgressUpdate | None:
        """The update of another instance; None for our own and for one that cannot be decoded."""
        try:
            update = _decode(text)
        except msgspec.MsgspecError:
            return None
        return None if update.instance == self._instance else update

    def stop(self) -> None:
        """Publishes nothing more. A second call changes nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._updates.clear()
        for task in self._sending:
            task.cancel()

    def _send(self) -> None:
        self._timer = None
        updates, self._updates = self._updates, {}
        hints = [Hint(HintKind.PROGRESS, _encode(update).decode()) for update in updates.values()]
        task = asyncio.get_running_loop().create_task(self._publish(hints), name="relay")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _publish(self, hints: list[Hint]) -> None:
        try:
            await self._storage.publish(hints)
        except StorageOutcomeUnknown:
            pass  # the next update replaces this one
        except Exception:
            log.exception("publishing progress failed", extra={"action": "relay"})
