"""Record: a small durable value that belongs to no job, such as a token, a delivery or the state of a schedule."""

from datetime import datetime

from msgspec import Struct


class Record(Struct, frozen=True, gc=False):
    """A stored value. Only the owner of its collection knows the format of the bytes."""

    collection: str
    key: str
    value: bytes
    #: Counts the writes, from 1. A record that was removed or expired starts again at 1.
    revision: int
    #: When `due` returns it; None: never.
    due: datetime | None = None


class RecordWrite(Struct, frozen=True, gc=False):
    """A record to be written, with its fence."""

    collection: str
    key: str
    #: None removes the record.
    value: bytes | None
    due: datetime | None = None
    #: The stored revision that the write requires; 0: none may be stored; None: no requirement.
    expected: int | None = None
    #: Seconds, by the store's clock, until the record expires; None: never.
    ttl_s: float | None = None


class Quota(Struct, frozen=True, gc=False):
    """How often something may be created. Counted in the write that creates it."""

    #: Names what is counted, such as one client's jobs of one month.
    counter: str
    #: None: counted and never refused.
    limit: int | None
    #: Seconds, by the store's clock, for which the count is kept after the last write.
    ttl_s: float


class TokenGrant(Struct, frozen=True, gc=False):
    """The answer to a request for tokens of a bucket."""

    #: All requested tokens were granted; otherwise none was.
    ok: bool
    #: Whole tokens that are left.
    left: int
    #: Seconds until the bucket is full again.
    full_in_s: float
    #: Seconds until the requested number is available; 0 when it was granted.
    wait_s: float = 0.0
