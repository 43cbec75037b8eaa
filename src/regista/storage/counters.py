"""Counters: token buckets, and quotas that are counted with a creation. In memory and synchronous."""

import math
from collections.abc import Sequence

from ..clock import Clock, add_seconds
from ..model import Quota, TokenGrant
from .codec import micros
from .journal import CountRow, JournalBatch

#: TokenBuckets that may be full are looked for when so many have come since the last look.
_SWEEP_AFTER = 1024


def taken(ahead_s: float, n: int, limit: int, window_s: float) -> TokenGrant:
    """The answer of a bucket that would be full in `ahead_s` seconds if nobody took anything.

    The level of a bucket is that one number: `limit` tokens come back in `window_s`, one after the other.
    """
    if limit < 1:
        return TokenGrant(False, 0, 0.0, window_s)
    per_token = window_s / limit
    wanted = ahead_s + n * per_token
    # A millionth of a token is the rounding of a clock, and nobody's.
    ok = wanted <= window_s + per_token * 1e-6
    ahead = wanted if ok else ahead_s
    left = math.floor((window_s - ahead) / per_token + 1e-6)
    # Who wants more than there ever is waits for as long as it takes to fill: there is no better answer.
    wait_s = 0.0 if ok else min(wanted - window_s, max(ahead_s, per_token))
    return TokenGrant(ok, max(left, 0), ahead, wait_s)


class TokenBuckets:
    """Token buckets by name. One that nobody knows is full, so full ones are forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Name → in how many seconds it was full, and when that was so by `clock.elapsed()`.
        self._levels: dict[str, tuple[float, float]] = {}
        self._swept = 0

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, bucket: str, n: int, limit: int, window_s: float) -> TokenGrant:
        elapsed = self._clock.elapsed()
        ahead_s, since = self._levels.get(bucket, (0.0, elapsed))
        answer = taken(max(ahead_s - (elapsed - since), 0.0), n, limit, window_s)
        if answer.ok and n > 0:
            self._levels[bucket] = (answer.full_in_s, elapsed)
            if len(self._levels) > 2 * self._swept + _SWEEP_AFTER:
                self._sweep(elapsed)
        return answer

    def _sweep(self, elapsed: float) -> None:
        self._levels = {name: level for name, level in self._levels.items() if sum(level) > elapsed}
        self._swept = len(self._levels)


class QuotaCounters:
    """How often each quota was used."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[str, CountRow] = {}
        self._swept = 0

    def used(self, counter: str) -> int:
        row = self._rows.get(counter)
        return 0 if row is None or row.expires <= micros(self._clock.now()) else row.used

    def allows(self, quota: Quota) -> bool:
        """One more may be created."""
        return quota.limit is None or self.used(quota.counter) < quota.limit

    def count(self, quota: Quota, batch: JournalBatch) -> None:
        """One more was created; `check_quota` has seen the quota."""
        expires = micros(add_seconds(self._clock.now(), quota.ttl_s))
        row = CountRow(quota.counter, self.used(quota.counter) + 1, expires)
        self._rows[quota.counter] = batch.counts[quota.counter] = row
        if len(self._rows) > 2 * self._swept + _SWEEP_AFTER:
            self._sweep(batch)

    def _sweep(self, batch: JournalBatch) -> None:
        now = micros(self._clock.now())
        for name in [name for name, row in self._rows.items() if row.expires <= now]:
            del self._rows[name]
            batch.counts[name] = CountRow(name, 0, 0)
        self._swept = len(self._rows)

    def restore(self, rows: Sequence[CountRow]) -> None:
        """Go on from what the file says."""
        self._rows = {row.counter: row for row in rows}


def check_quota(quota: Quota) -> None:
    """Raise a ValueError or OverflowError when it cannot be stored."""
    quota.counter.encode()
    if not math.isfinite(quota.ttl_s):
        raise ValueError(f"the time of a quota: expected seconds, got {quota.ttl_s}")
