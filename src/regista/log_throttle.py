"""Limits repeated log lines: one line per key in a period."""

from collections.abc import Callable, Hashable


class LogThrottle:
    """Says whether a line about a key is due. Remembers at most `max_keys`; further keys wait until some expire."""

    def __init__(self, elapsed: Callable[[], float], every_s: float, max_keys: int = 1000) -> None:
        self._elapsed = elapsed
        self._every_s = every_s
        self._max_keys = max_keys
        self._logged_at: dict[Hashable, float] = {}

    def is_due(self, key: Hashable) -> bool:
        """True, at most once in `every_s` seconds for each key."""
        now = self._elapsed()
        if len(self._logged_at) >= self._max_keys:
            fresh = {one: at for one, at in self._logged_at.items() if now - at < self._every_s}
            self._logged_at = fresh
        last = self._logged_at.get(key)
        if last is not None and now - last < self._every_s:
            return False
        if last is None and len(self._logged_at) >= self._max_keys:
            return False
        self._logged_at[key] = now
        return True
