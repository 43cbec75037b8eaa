"""ProgressRelay: progress that is told here, for those who watch it at another instance. Nobody keeps it."""

import asyncio
import logging

import msgspec

from ..errors import StorageOutcomeUnknown
from ..storage.base import Hint, HintKind, StorageBackend

log = logging.getLogger("regista.feed")

#: Words of so many seconds leave together, the newest of each attempt alone.
_EVERY_S = 0.1

_encode = msgspec.json.Encoder().encode


class ProgressUpdate(msgspec.Struct, frozen=True, array_like=True):
    """How far an attempt is, and which instance says so."""

    instance: str
    attempt_id: str
    value: float | None
    message: str


_decode = msgspec.json.Decoder(ProgressUpdate).decode


class ProgressRelay:
    """Gathers progress and passes it on, where others share the store. Elsewhere it does nothing."""

    def __init__(self, storage: StorageBackend, instance: str) -> None:
        self._storage = storage
        self._instance = instance
        self._words: dict[str, ProgressUpdate] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def tell(self, attempt_id: str, value: float | None, message: str) -> None:
        """An attempt of a worker that is connected here."""
        if not self._storage.shared:
            return
        self._words[attempt_id] = ProgressUpdate(self._instance, attempt_id, value, message)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._send)

    def heard(self, text: str) -> ProgressUpdate | None:
        """What another instance told; None for our own echo, and for what we cannot read."""
        try:
            word = _decode(text)
        except msgspec.MsgspecError:
            return None
        return None if word.instance == self._instance else word

    def stop(self) -> None:
        """Pass nothing more on. Twice is fine."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._words.clear()
        for task in self._sending:
            task.cancel()

    def _send(self) -> None:
        self._timer = None
        words, self._words = self._words, {}
        hints = [Hint(HintKind.PROGRESS, _encode(word).decode()) for word in words.values()]
        task = asyncio.get_running_loop().create_task(self._nudge(hints), name="relay")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _nudge(self, hints: list[Hint]) -> None:
        try:
            await self._storage.nudge(hints)
        except StorageOutcomeUnknown:
            pass  # the next word says more
        except Exception:
            log.exception("passing progress on failed", extra={"action": "relay"})
