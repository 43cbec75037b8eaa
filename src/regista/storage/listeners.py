"""HintListeners: the callbacks of one process that subscribe to hints of the store."""

import logging
from collections.abc import Callable, Iterable
from itertools import count

from .base import Hint

log = logging.getLogger("regista.storage")


class HintListeners:
    """Calls each subscriber with each hint. An error of one is logged and keeps nothing from the others."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[Hint], None]] = {}
        self._keys = count()

    def add(self, callback: Callable[[Hint], None]) -> Callable[[], None]:
        """Call `callback` until the returned function is called."""
        key = next(self._keys)
        self._callbacks[key] = callback
        return lambda: self._callbacks.pop(key, None) and None

    def call(self, hints: Iterable[Hint]) -> None:
        for callback in list(self._callbacks.values()):
            try:
                for hint in hints:
                    callback(hint)
            except Exception:  # hints may be lost anyway
                log.exception("a listener failed", extra={"action": "storage_hint"})
