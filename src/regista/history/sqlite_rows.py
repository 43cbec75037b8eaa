"""Entries to what one statement of SQLite writes, and its answers back to records."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from ..clock import EPOCH
from ..model import JobSummary, OutboxEntry
from .encoding import encode_events, encode_json
from .indexed import Indexed, Said
from .query.index import keys_of
from .superseded import latest, without_superseded

#: Entries encoded before the loop gets a turn: about a millisecond.
ENCODED_AT_ONCE = 200
#: Added to every number of `heads` and `moments`, so that each is 19 digits long; 0005_numbers.sql says why. With its
#: comma that is 20 bytes.
WIDE, BYTES = 2_000_000_000_000_000_000, 20
#: What jobs have in common, and the place of each; name, key, microseconds and job of what leads to one.
_Kind = tuple[Any, ...]
_Key = tuple[str, str, int, str]


class Batch(NamedTuple):
    """The columns of the view `batches`."""

    entries: str
    heads: bytearray
    bodies: bytearray
    kinds: str
    moments: bytearray
    keys: str
    lowest: int
    cursor: int


async def pack(entries: Sequence[OutboxEntry], indexed: Indexed) -> tuple[Batch, list[tuple[str, Said]]]:
    """Encode each entry once, and of each job's summaries only the last; and what that says of attributes."""
    job_ids: list[str] = []
    heads: list[int] = []
    bodies: list[bytes] = []
    start = WIDE + 1  # substr counts from one
    for count, entry in enumerate(without_superseded(entries), 1):
        body = encode_events(entry)
        length = len(body)
        job_ids.append(entry.job_id)
        heads += (entry.number + WIDE, entry.first_seq + WIDE, start, length + WIDE)
        bodies.append(body)
        start += length
        if count % ENCODED_AT_ONCE == 0:
            await asyncio.sleep(0)
    kinds, moments, keys, news = _jobs(latest(entries), indexed)
    numbers = [entry.number for entry in entries]
    told, listed, led = (encode_json(part).decode() for part in (job_ids, kinds, keys))
    digits, times = (bytearray(encode_json(part)) for part in (heads, moments))
    glued = bytearray().join(bodies)
    return Batch(told, digits, glued, listed, times, led, min(numbers), max(numbers)), news


def _jobs(
    newest: dict[str, tuple[int, JobSummary]], indexed: Indexed
) -> tuple[list[_Kind], list[int], list[_Key], list[tuple[str, Said]]]:
    """Jobs by what they have in common, what is left of each, and what leads to them."""
    kinds: dict[_Kind, dict[str, int]] = {}
    moments: list[int] = []
    keys: list[_Key] = []
    news: list[tuple[str, Said]] = []
    for job_id, (number, summary) in newest.items():
        said = indexed.say(summary)
        kinds.setdefault(_kind(summary, said), {})[job_id] = len(moments) * BYTES + 2
        created_at = _micros(summary.created_at)
        ended = updated_at = _micros(summary.updated_at)  # the change that ended a job is mostly its last
        if summary.finished_at != summary.updated_at:
            ended = 0 if summary.finished_at is None else _micros(summary.finished_at)
        moments += (number + WIDE, created_at + WIDE, updated_at + WIDE, ended + WIDE)
        if said.keys:
            news.append((job_id, said))
            keys += [(name, key, created_at, job_id) for name, key in said.keys]
    return [(*kind, members) for kind, members in kinds.items()], moments, keys, news


def _kind(summary: JobSummary, said: Said) -> _Kind:
    """What a job is likely to have in common with others."""
    return (
        summary.client,
        summary.blueprint,
        summary.version,
        summary.status,
        summary.state,
        summary.parent_id,
        summary.error_code,
        encode_json(said.attributes).decode() if said.attributes else "{}",
        said.words,
        summary.finished_at is not None,
    )


def _micros(moment: datetime) -> int:
    # By its parts: to divide one span by another costs three times as much.
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def index_rows(
    job_id: str, created_at: float, attributes: dict[str, Any]
) -> list[tuple[str, str, float, str]]:
    """The rows of `attributes` that lead to this job."""
    return [(name, key, created_at, job_id) for name, key in keys_of(attributes)]


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

    def summary(self) -> JobSummary:
        """The record that was stored."""
        fields = msgspec.structs.asdict(self)
        for name in ("created_at", "updated_at", "finished_at"):
            if fields[name] is not None:
                fields[name] = EPOCH + timedelta(microseconds=fields[name])
        return JobSummary(**fields)
