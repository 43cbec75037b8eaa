"""Clocks, ids and randomness. They are passed to constructors, so that tests can control them."""

import random
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Clock(Protocol):
    """Two clocks: times of `now` may be stored, times of `elapsed` may be subtracted."""

    def now(self) -> datetime:
        """The aware time of day in UTC. Only this time is stored."""
        ...

    def elapsed(self) -> float:
        """Seconds on a clock that never jumps. Never stored: it has no meaning in another process."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> float:
        return time.monotonic()


class StoreClock:
    """The machine's clock, adjusted to the clock of the shared store.

    One machine stores deadlines and another acts on them. Without the adjustment, a machine whose clock is three
    minutes ahead would time out the tasks of all others.
    """

    def __init__(self, own: Clock) -> None:
        self.own = own
        #: How far the store's clock is ahead of this machine's.
        self.ahead = timedelta()

    def now(self) -> datetime:
        return self.own.now() + self.ahead

    def elapsed(self) -> float:
        return self.own.elapsed()


def add_seconds(start: datetime, seconds: float) -> datetime:
    """The time plus seconds, limited to the end of the calendar instead of overflowing."""
    try:
        return start + _span(seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


@lru_cache(maxsize=1024)
def _span(seconds: float) -> timedelta:
    # A few timeouts are used again and again; creating a timedelta costs more than adding it.
    return timedelta(seconds=seconds)


def elapsed_ms(since: datetime, until: datetime) -> float:
    """Milliseconds between two times."""
    return (until - since) / _MILLISECOND


class IdGenerator:
    """Makes ids that sort by the time they were made (the layout of UUID version 7).

    Ordered ids keep the newest rows of every b-tree side by side: 15 instead of 198 µs of history per job.
    Ids of one generator never go backwards, even when the clock does.
    """

    def __init__(self, clock: Clock, source: random.Random | None = None) -> None:
        self.random = source if source is not None else random.Random(random.SystemRandom().getrandbits(128))
        self._clock = clock
        self._last = 0
        self._moment: datetime | None = None
        #: The milliseconds of the last id, and how an id of theirs begins.
        self._millisecond, self._head = -1, ""
        self._prefix = f"{self.random.getrandbits(48):012x}"
        self._tokens = 0

    def new_id(self, now: datetime | None = None) -> str:
        """A unique id: 48 bits of milliseconds, 12 of sequence, 62 random bits."""
        moment = now or self._clock.now()
        # The jobs of a batch share one time.
        stamp = 0 if moment is self._moment else int(moment.timestamp() * 1000) << 12
        self._moment = moment
        # Count on within one millisecond, and when the clock was set back.
        self._last = last = stamp if stamp > self._last else self._last + 1
        if last >> 12 != self._millisecond:
            self._millisecond = last >> 12
            text = f"{self._millisecond:012x}"
            self._head = f"{text[:8]}-{text[8:]}-"
        # The first digit of each part is never 0 (version 7, variant 8 to b), so `hex` omits none.
        tail = hex(1 << 63 | self.random.getrandbits(62))
        return f"{self._head}{hex(7 << 12 | last & 0xFFF)[2:]}-{tail[2:6]}-{tail[6:]}"

    def new_token(self) -> str:
        """A commit token, unique among all writers."""
        self._tokens += 1
        return f"{self._prefix}{self._tokens}"


def derived_id(*parts: str) -> str:
    """The id derived from `parts`, always the same. Used where a repetition must have no effect."""
    # With its length before each part, different lists of parts never give the same text.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:]}"
