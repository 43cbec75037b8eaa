"""Entries to what one statement of SQLite writes, and its answers back to records."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from ..clock import EPOCH
from ..model import Entry, Summary
from .encoding import encode_events, encode_json
from .indexed import Indexed, Said
from .listfilter.index import keys_of
from .story import latest, undisputed

#: Entries encoded before the loop gets a turn: about a millisecond.
ENCODED_AT_ONCE = 200


class Batch(NamedTuple):
    """The columns of the view `batches`."""

    entries: str
    bodies: bytearray
    jobs: str
    keys: str
    lowest: int
    cursor: int


async def pack(entries: Sequence[Entry], indexed: Indexed) -> tuple[Batch, list[tuple[str, Said]]]:
    """Encode each entry once, and of each job's summaries only the last; and what that says of attributes."""
    bodies = bytearray()
    rows: list[tuple[str, int, int, int, int]] = []
    for count, entry in enumerate(undisputed(entries), 1):
        start = len(bodies)
        encode_events(entry.events, bodies)
        rows.append((entry.job_id, entry.first_seq, entry.number, start + 1, len(bodies) - start))
        if count % ENCODED_AT_ONCE == 0:
            await asyncio.sleep(0)
    jobs: list[tuple[Any, ...]] = []
    keys: list[tuple[str, str, float, str]] = []
    news: list[tuple[str, Said]] = []
    for number, summary in latest(entries).values():
        said = indexed.say(summary)
        created_at = summary.created_at.timestamp()
        jobs.append(_job_row(number, summary, created_at, said))
        if said.keys:
            news.append((summary.job_id, said))
            keys += [(name, key, created_at, summary.job_id) for name, key in said.keys]
    numbers = [entry.number for entry in entries]
    told, listed, led = (encode_json(part).decode() for part in (rows, jobs, keys))
    return Batch(told, bodies, listed, led, min(numbers), max(numbers)), news


def index_rows(
    job_id: str, created_at: float, attributes: dict[str, Any]
) -> list[tuple[str, str, float, str]]:
    """The rows of `attributes` that lead to this job."""
    return [(name, key, created_at, job_id) for name, key in keys_of(attributes)]


def _job_row(number: int, summary: Summary, created_at: float, said: Said) -> tuple[Any, ...]:
    """The columns of `jobs`, in their order."""
    return (
        summary.job_id,
        number,
        summary.client,
        summary.blueprint,
        summary.version,
        summary.status,
        summary.state,
        created_at,
        summary.updated_at.timestamp(),
        None if summary.finished_at is None else summary.finished_at.timestamp(),
        summary.parent_id,
        summary.error_code,
        said.attributes,
        said.words,
    )


class JobRow(msgspec.Struct, array_like=True):
    """A row of `jobs` as queries give it back; times in microseconds."""

    job_id: str
    client: str
    blueprint: str
    version: str
    status: str
    state: str
    created_at: int
    updated_at: int
    finished_at: int | None
    parent_id: str | None
    error_code: str | None
    search_attributes: dict[str, Any]

    def summary(self) -> Summary:
        """The record that was stored."""
        fields = msgspec.structs.asdict(self)
        for name in ("created_at", "updated_at", "finished_at"):
            if fields[name] is not None:
                fields[name] = EPOCH + timedelta(microseconds=fields[name])
        return Summary(**fields)
