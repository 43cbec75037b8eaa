"""Entries to the rows of a SQL history, and rows back to records."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec import Struct

from ..clock import EPOCH
from ..model import JobSummary, OutboxEntry
from .encoding import decode_events, encode_events
from .query.index import keys_of, stored, text_index
from .sql_builder import SqlBuilder, micros
from .superseded import latest, without_superseded

#: Entries encoded before the loop gets a turn: about a millisecond.
ENCODED_AT_ONCE = 200

#: job_id, first_seq, number, body.
EntryValues = tuple[str, int, int, bytes]
#: job_id, number, client, blueprint, version, status, state, created_at, updated_at, finished_at, parent_id, error_code,
#: search_attributes, words. Times are microseconds since 1970.
JobValues = tuple[str, int, str, str, str, str, str, int, int, int | None, str | None, str | None, str, str]
#: name, key, created_at, job_id.
AttributeValues = tuple[str, str, int, str]
JOB_COLUMNS = 14


class Batch(NamedTuple):
    """What is written together."""

    entries: list[EntryValues]
    jobs: list[JobValues]
    attributes: list[AttributeValues]
    lowest: int
    cursor: int


async def pack(entries: Sequence[OutboxEntry], dialect: type[SqlBuilder]) -> Batch:
    """Encode each entry once, and of each job's summaries only the last."""
    numbers = [entry.number for entry in entries]
    batch = Batch([], [], [], min(numbers), max(numbers))
    storable = dialect.storable
    for count, entry in enumerate(without_superseded(entries), 1):
        batch.entries.append((storable(entry.job_id), entry.first_seq, entry.number, encode_events(entry)))
        if count % ENCODED_AT_ONCE == 0:
            await asyncio.sleep(0)
    for count, (number, summary) in enumerate(latest(entries).values(), 1):
        _add_job(batch, number, summary, dialect)
        if count % ENCODED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return batch


def _add_job(batch: Batch, number: int, row: JobSummary, dialect: type[SqlBuilder]) -> None:
    storable = dialect.storable
    job_id, created_at = storable(row.job_id), micros(row.created_at)
    attributes, words = "{}", ""
    if row.search_attributes:
        kept = stored(row.search_attributes)
        attributes, words = dialect.storable_json(kept), storable(text_index(kept))
        batch.attributes.extend((name, storable(key), created_at, job_id) for name, key in keys_of(kept))
    batch.jobs.append(
        (
            job_id,
            number,
            storable(row.client),
            storable(row.blueprint),
            storable(row.version),
            storable(row.status),
            storable(row.state),
            created_at,
            micros(row.updated_at),
            None if row.finished_at is None else micros(row.finished_at),
            None if row.parent_id is None else storable(row.parent_id),
            None if row.error_code is None else storable(row.error_code),
            attributes,
            words,
        )
    )


class CursorRow(Struct, array_like=True):
    """The number of the last entry recorded."""

    value: int


class EntryRow(Struct, array_like=True):
    """An entry; its body as hexadecimal text, None where it belongs to another client."""

    number: int
    job_id: str
    first_seq: int
    body: str | None

    def entry(self, job_id: str | None = None) -> OutboxEntry:
        """The entry that was stored."""
        events = decode_events(bytes.fromhex(self.body or ""))
        return OutboxEntry(self.number, self.job_id if job_id is None else job_id, self.first_seq, events)


class IdRow(Struct, array_like=True):
    """A job."""

    job_id: str


class AttributesRow(Struct, array_like=True):
    """What a job can be found by."""

    job_id: str
    created_at: int
    search_attributes: str

    def keys(self, dialect: type[SqlBuilder]) -> Iterable[AttributeValues]:
        """The rows of the index that lead to the job."""
        for name, key in keys_of(msgspec.json.decode(self.search_attributes)):
            yield name, dialect.storable(key), self.created_at, self.job_id


class CountRow(Struct, array_like=True):
    """How many rows a condition leads to."""

    place: int
    number: int


class JobRow(Struct, array_like=True):
    """A job as it is listed; times in microseconds, attributes as JSON."""

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
    search_attributes: str

    def summary(self) -> JobSummary:
        """The record that was stored."""
        attributes = msgspec.json.decode(self.search_attributes)
        return JobSummary(
            job_id=self.job_id,
            client=self.client,
            blueprint=self.blueprint,
            version=self.version,
            status=self.status,
            state=self.state,
            created_at=_moment(self.created_at),
            updated_at=_moment(self.updated_at),
            finished_at=None if self.finished_at is None else _moment(self.finished_at),
            parent_id=self.parent_id,
            error_code=self.error_code,
            search_attributes={name: _number(value) for name, value in attributes.items()},
        )


def _moment(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)


def _number(value: object) -> object:
    """JSONB writes 1e300 with all its digits; what is beyond 64 bits was stored as a float."""
    return float(value) if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 else value
