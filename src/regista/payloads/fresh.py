"""Fresh: what was written to the payload store a short while ago, and so need not be written again.

Values of a record that nobody has are removed once they are older than an hour (payloads/cleanup.py). What is fresh
is much younger, so it is still there; of what is older, nobody can say so without a look.
"""

from collections import OrderedDict

from ..clock import Clock

#: How long a write is good for. Far below the hour after which nobody's values are removed.
_GOOD_FOR_S = 600.0


class RecentUploads:
    """Paths by the job that they belong to, for ten minutes after they were written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Job → path → when it was written. The job that was written to last is the last.
        self._written: OrderedDict[str, dict[str, float]] = OrderedDict()

    def has(self, owner: str, path: str) -> bool:
        """It was written so lately that it must be there."""
        at = self._written.get(owner, {}).get(path)
        return at is not None and self._clock.elapsed() - at < _GOOD_FOR_S

    def add(self, owner: str, path: str) -> None:
        """It was written just now."""
        now = self._clock.elapsed()
        self._written.setdefault(owner, {})[path] = now
        self._written.move_to_end(owner)
        self._forget_old(now)

    def drop(self, owner: str) -> None:
        """Nothing of this job is sure to be there: it has ended, or what was written was refused."""
        self._written.pop(owner, None)

    def _forget_old(self, now: float) -> None:
        """Jobs that nobody has written to for long; the first of them is the one with the oldest news."""
        while self._written:
            owner, paths = next(iter(self._written.items()))
            if now - max(paths.values()) < _GOOD_FOR_S:
                return
            del self._written[owner]
