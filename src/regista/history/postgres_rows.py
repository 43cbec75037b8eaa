"""Entries to the columns of PostgreSQL, and rows back to records."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ..model import Entry, Event, Summary
from .encoding import decode_events, encode_events, encode_json, legible

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
    cursor: int


async def pack(entries: Sequence[Entry]) -> Batch:
    """Encode each entry once, and of each job's summaries only the last."""
    batch = Batch([], [], [], [], "", max(entry.number for entry in entries))
    latest: dict[str, Entry] = {}
    for count, entry in enumerate(entries, 1):
        if entry.events:
            _add(batch, entry)
        if entry.summary is not None:
            rival = latest.get(entry.job_id)
            if rival is None or rival.number < entry.number:
                latest[entry.job_id] = entry
        if count % ENCODED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return batch._replace(jobs=storable_json(_job_rows(latest.values())))


def _add(batch: Batch, entry: Entry) -> None:
    body = bytearray()
    encode_events(entry.events, body)
    batch.job_ids.append(storable(entry.job_id))
    batch.first_seqs.append(entry.first_seq)
    batch.numbers.append(entry.number)
    batch.bodies.append(bytes(body))


def _job_rows(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    return [
        msgspec.structs.asdict(entry.summary) | {"number": entry.number}
        for entry in entries
        if entry.summary is not None
    ]


def storable(text: str) -> str:
    """`text` as PostgreSQL keeps it: NUL and half a surrogate pair as their escapes. The same for what is asked."""
    return str(legible(text)).replace("\0", _NUL.decode())


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


def events_of(job_id: str, first_seq: int, body: bytes) -> list[Event]:
    """The events of one row, with their names."""
    return Entry(0, job_id, first_seq, decode_events(body)).numbered()


def summary_of(columns: dict[str, Any]) -> Summary:
    """A row of the query `summaries`."""
    attributes = msgspec.json.decode(columns["search_attributes"])
    return Summary(**columns | {"search_attributes": attributes})
