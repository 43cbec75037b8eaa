"""Quotas: how many jobs a client may have accepted in a calendar month."""

import math
from datetime import UTC, date, datetime, time, tzinfo
from functools import lru_cache

from ..errors import QuotaExceeded
from ..model import ClientConfig, Quota
from ..storage.base import StorageBackend
from .base import MonthlyQuota

#: Seconds for which a count outlives its month, because clocks of instances differ.
_KEPT_S = 7 * 86_400.0


def monthly_quota(client: ClientConfig, now: datetime, zone: tzinfo) -> MonthlyQuota | None:
    """The client's quota for the current month in this zone; None without a limit."""
    if client.monthly_attempts is None:
        return None
    month, resets_at = _month(now.date(), now.hour, now.minute, zone)
    left_s = (resets_at - now).total_seconds()
    quota = Quota(f"jobs:{month}:{client.name}", client.monthly_attempts, left_s + _KEPT_S)
    return MonthlyQuota(quota, resets_at)


@lru_cache(maxsize=4)
def _month(day: date, hour: int, minute: int, zone: tzinfo) -> tuple[str, datetime]:
    """The month in this zone at a minute of UTC, and its end. Cached, since every request asks.

    No month begins within a minute: no zone of today differs from UTC by seconds.
    """
    here = datetime.combine(day, time(hour, minute, tzinfo=UTC)).astimezone(zone)
    return f"{here:%Y-%m}", next_month(here)


def next_month(moment: datetime) -> datetime:
    """The first midnight of the next month, in the zone of `moment`."""
    year, month = (moment.year + 1, 1) if moment.month == 12 else (moment.year, moment.month + 1)
    return datetime(year, month, 1, tzinfo=moment.tzinfo)


async def quota_exceeded(storage: StorageBackend, monthly: MonthlyQuota, now: datetime) -> QuotaExceeded:
    """The error for a client that has used up its quota."""
    used = await storage.quota_used(monthly.quota.counter)
    wait_s = (monthly.resets_at - now).total_seconds()
    return QuotaExceeded(monthly.quota.limit or 0, used, monthly.resets_at, max(1, math.ceil(wait_s)))
