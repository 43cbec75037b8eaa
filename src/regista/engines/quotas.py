"""Quotas: how many jobs a client may have accepted in a calendar month, and how near its end that is."""

import asyncio
import functools
import math
from datetime import UTC, date, datetime, time, tzinfo
from functools import lru_cache
from typing import Any, TypeVar

from ..clock import Clock
from ..errors import QuotaExceeded
from ..model import ClientConfig, Quota
from ..storage.base import StorageBackend
from .base import MonthlyQuota

T = TypeVar("T")

#: Seconds for which a count outlives its month: clocks differ, and whoever looks back a little still finds it.
_KEPT_S = 7 * 86_400.0
#: Accepted jobs from the end at which a job is written before its first handler runs. So many may be on their
#: way at once, here and elsewhere, and no handler shall run for a job that is then refused.
NEAR = 1000
#: Seconds for which the count that was read is good enough to say that the end is far.
_LOOK_S = 1.0


def monthly_quota(client: ClientConfig, now: datetime, zone: tzinfo) -> MonthlyQuota | None:
    """What this client may have in the month that it is now in this zone; None: as much as it likes."""
    if client.monthly_attempts is None:
        return None
    month, resets_at = _month(now.date(), now.hour, now.minute, zone)
    left_s = (resets_at - now).total_seconds()
    quota = Quota(f"jobs:{month}:{client.name}", client.monthly_attempts, left_s + _KEPT_S)
    return MonthlyQuota(quota, resets_at)


@lru_cache(maxsize=4)
def _month(day: date, hour: int, minute: int, zone: tzinfo) -> tuple[str, datetime]:
    """The month that it is in this zone in a minute of UTC, and its end. Every request asks.

    No month begins within a minute: today no zone differs from UTC by seconds.
    """
    here = datetime.combine(day, time(hour, minute, tzinfo=UTC)).astimezone(zone)
    return f"{here:%Y-%m}", next_month(here)


def next_month(moment: datetime) -> datetime:
    """The first midnight of the month after this one, in the zone of `moment`."""
    year, month = (moment.year + 1, 1) if moment.month == 12 else (moment.year, moment.month + 1)
    return datetime(year, month, 1, tzinfo=moment.tzinfo)


class Ledger:
    """Knows roughly how much of each quota is used. The store decides; this only says what is not worth trying."""

    def __init__(self, storage: StorageBackend, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        #: Counter → how much was used, what has been added here since, and when it was read.
        self._seen: dict[str, tuple[int, float]] = {}
        #: Counter → writes of those that were told that the end is far.
        self._under_way: dict[str, set[asyncio.Future[Any]]] = {}

    async def is_far(self, quota: Quota, n: int) -> bool:
        """So many more will surely be accepted, and then some."""
        limit = math.inf if quota.limit is None else quota.limit
        if n + NEAR > limit:
            return False
        elapsed = self._clock.elapsed()
        used, read_at = self._seen.get(quota.counter, (0, -math.inf))
        if elapsed - read_at > _LOOK_S:
            used, read_at = await self._storage.used(quota.counter), elapsed
        self._seen[quota.counter] = (used + n, read_at)
        return used + n + NEAR <= limit

    def follow(self, quota: Quota, written: "asyncio.Future[T]") -> "asyncio.Future[T]":
        """Remember the write of somebody who was told that the end is far, until it is done."""
        counter = quota.counter
        self._under_way.setdefault(counter, set()).add(written)
        written.add_done_callback(functools.partial(self._forget, counter))
        return written

    def _forget(self, counter: str, written: "asyncio.Future[Any]") -> None:
        left = self._under_way[counter]
        left.discard(written)
        if not left:
            del self._under_way[counter]

    async def let_pass(self, quota: Quota) -> None:
        """Wait for those that were let through before. Their handlers have run, or do: who comes later, and is written
        sooner, must not take what they count on.
        """
        before = self._under_way.get(quota.counter)
        if before:
            await asyncio.wait(set(before))

    async def refusal(self, allowance: MonthlyQuota) -> QuotaExceeded:
        """What to tell a client that has used up its quota."""
        used = await self._storage.used(allowance.quota.counter)
        wait_s = (allowance.resets_at - self._clock.now()).total_seconds()
        return QuotaExceeded(allowance.quota.limit or 0, used, allowance.resets_at, max(1, math.ceil(wait_s)))
