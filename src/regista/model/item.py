"""Item: a small durable record that belongs to no job: a token, a delivery, a schedule's state."""

from datetime import datetime

from msgspec import Struct


class Item(Struct, frozen=True, gc=False):
    """A record on a shelf. Whoever owns the shelf knows what the bytes mean."""

    shelf: str
    key: str
    value: bytes
    #: Counts its writes, from 1. One that was removed, or whose time was over, begins anew.
    revision: int
    #: When somebody should look at it; None: never by itself.
    due: datetime | None = None


class ItemWrite(Struct, frozen=True, gc=False):
    """An item as it shall be, and the fence that guards it."""

    shelf: str
    key: str
    #: None removes it.
    value: bytes | None
    due: datetime | None = None
    #: The revision that must be stored for the write to count; 0: nothing may be there; None: whatever is.
    expected: int | None = None
    #: Seconds, by the store's clock, after which it is gone; None: it stays.
    ttl_s: float | None = None


class Quota(Struct, frozen=True, gc=False):
    """How often something may be created: counted in the very write that creates it."""

    #: What is counted, e.g. a client's jobs of one month.
    counter: str
    #: None: counted, never refused.
    limit: int | None
    #: Seconds, by the store's clock, after the last write for which the count is kept.
    ttl_s: float


class Taken(Struct, frozen=True, gc=False):
    """The answer to a wish for tokens from a bucket."""

    #: All that was asked for was given; otherwise none was.
    ok: bool
    #: Whole tokens that are left.
    left: int
    #: Seconds until the bucket is full again.
    full_in_s: float
    #: Seconds until as much can be given as was asked for; 0 when it was.
    wait_s: float = 0.0
