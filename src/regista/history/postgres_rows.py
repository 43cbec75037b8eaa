"""Entries to the columns of PostgreSQL, and rows back to records."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from ..model import JobSummary, OutboxEntry
from .encoding import decode_events, encode_events, encode_json, make_encodable
from .indexed import Indexed, Said
from .superseded import latest, without_superseded

#: Entries encoded before the loop gets a turn: about a millisecond.
ENCODED_AT_ONCE = 200
#: What stands in JSON for the one character that PostgreSQL keeps in no text.
_NUL = rb"\u0000"


class Batch(NamedTuple):
    """The arguments of the query `record`, in their order."""

    job_ids: list[str]
    first_seqs: list[int]
    numbers: list[int]
    bodies: list[bytes]
    jobs: str
    keys: "Keys"
    cursor: int

    def arguments(self) -> tuple[Any, ...]:
        """All of them, side by side."""
        return (*self[:5], *self.keys, self.cursor)


class Keys(NamedTuple):
    """The columns of what leads to jobs."""

    names: list[str]
    keys: list[str]
    created_at: list[datetime]
    job_ids: list[str]

    def add(self, job_id: str, created_at: datetime, keys: Iterable[tuple[str, str]]) -> None:
        """Lead to this job by these."""
        for name, key in keys:
            self.names.append(name)
            self.keys.append(storable(key))
            self.created_at.append(created_at)
            self.job_ids.append(storable(job_id))


async def pack(entries: Sequence[OutboxEntry], indexed: Indexed) -> tuple[Batch, list[tuple[str, Said]]]:
    """Encode each entry once, and of each job's summaries only the last; and what that says of attributes."""
    batch = Batch([], [], [], [], "", Keys([], [], [], []), max(entry.number for entry in entries))
    for count, entry in enumerate(without_superseded(entries), 1):
        _add(batch, entry)
        if count % ENCODED_AT_ONCE == 0:
            await asyncio.sleep(0)
    rows: list[dict[str, Any]] = []
    news: list[tuple[str, Said]] = []
    for number, summary in latest(entries).values():
        said = indexed.say(summary)
        further = {"number": number, "search_attributes": said.attributes, "words": said.words}
        rows.append(msgspec.structs.asdict(summary) | further)
        if said.keys:
            news.append((summary.job_id, said))
            batch.keys.add(summary.job_id, summary.created_at, said.keys)
    return batch._replace(jobs=storable_json(rows)), news


def _add(batch: Batch, entry: OutboxEntry) -> None:
    batch.job_ids.append(storable(entry.job_id))
    batch.first_seqs.append(entry.first_seq)
    batch.numbers.append(entry.number)
    batch.bodies.append(encode_events(entry))


def storable(text: str) -> str:
    """`text` as PostgreSQL keeps it: NUL and half a surrogate pair as their escapes. The same for what is asked."""
    return str(make_encodable(text)).replace("\0", _NUL.decode())


def storable_json(value: Any) -> str:
    """`value` as JSON that PostgreSQL takes."""
    encoded = encode_json(value)
    if _NUL in encoded:
        encoded = encode_json(_without_nul(msgspec.json.decode(encoded)))
    return encoded.decode()


def _without_nul(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case dict():
            return {storable(key): _without_nul(part) for key, part in value.items()}
        case list():
            return [_without_nul(part) for part in value]
        case _:
            return value


def entry_of(job_id: str, first_seq: int, body: bytes) -> OutboxEntry:
    """The entry of one row, for its events."""
    return OutboxEntry(0, job_id, first_seq, decode_events(body))


def summary_of(columns: dict[str, Any]) -> JobSummary:
    """A row of the query `summaries`."""
    attributes = {
        name: _number(value) for name, value in msgspec.json.decode(columns["search_attributes"]).items()
    }
    return JobSummary(**columns | {"search_attributes": attributes})


def _number(value: Any) -> Any:
    """JSONB writes 1e300 with all its digits; what is beyond 64 bits was no int of ours."""
    return float(value) if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 else value
