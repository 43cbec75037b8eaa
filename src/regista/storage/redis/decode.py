"""From what the server answers back to records."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from ...model import (
    AttemptState,
    CommitOutcome,
    CommitStatus,
    Event,
    OutboxEntry,
    QueueStatus,
    Record,
    Task,
    Worker,
    job_id_of_task,
    parse_queue_key,
)
from ..base import Due, DueKind, Hint, HintKind
from ..codec import decode_task, moment_of
from ..task_table import requeued
from .encode import STATES, StoredEntry

#: The answers of commit.lua and, the last two, of put_records.lua.
OUTCOMES = {
    ord("a"): CommitOutcome(CommitStatus.APPLIED),
    ord("w"): CommitOutcome(CommitStatus.APPLIED, ready=True),
    ord("r"): CommitOutcome(CommitStatus.REPEATED),
    ord("s"): CommitOutcome(CommitStatus.STALE),
    ord("m"): CommitOutcome(CommitStatus.MISSING),
    ord("e"): CommitOutcome(CommitStatus.EXISTS),
    ord("q"): CommitOutcome(CommitStatus.OVER_QUOTA),
    ord("y"): CommitOutcome(CommitStatus.APPLIED),
    ord("n"): CommitOutcome(CommitStatus.STALE),
}

# The head of a cell, by place, as lib/common.lua names them.
_STATE, _WORKER, _PLACE, _SESSION, _PRICE, _OFFERED = 1, 2, 9, 11, 12, 13

# The head of an item's cell, by place, as lib/records.lua names them.
_REVISION, _DUE = 0, 1

_KINDS = {kind.value: kind for kind in HintKind}
_decode_told = msgspec.msgpack.Decoder(StoredEntry).decode
_decode_worker = msgspec.msgpack.Decoder(Worker).decode
_decode_head = msgspec.msgpack.Decoder(list[Any]).decode
_decode_words = msgspec.msgpack.Decoder(list[str]).decode


def decode_answer(packed: bytes) -> tuple[list[CommitOutcome], list[Hint]]:
    """What commit.lua and put_records.lua answer: outcomes and hints."""
    letters, *lists = _decode_head(packed)
    words, not_offered = (each or [] for each in lists)  # Lua's empty table is a map
    outcomes = [OUTCOMES[letter] for letter in letters.encode()]
    for number, task_id in zip(not_offered[::2], not_offered[1::2], strict=True):
        known = outcomes[number - 1]
        outcomes[number - 1] = replace(known, not_offered=(*known.not_offered, task_id))
    return outcomes, hints_from(words)


def hints_of(packed: bytes) -> list[Hint]:
    """Kind, id and addressee in turn, as the scripts pack them."""
    return hints_from(_decode_words(packed)) if packed != b"\x80" else []  # Lua's empty table is a map


def hints_from(words: Sequence[str]) -> list[Hint]:
    """The hints that such words mean. A newer instance may hint at what is unknown here."""
    told = zip(words[::3], words[1::3], words[2::3], strict=True)
    return [Hint(_KINDS[kind], id, to) for kind, id, to in told if kind in _KINDS]


def task_of(cell: bytes) -> Task:
    """The task as it was written, with what an offer has changed since."""
    return placed_task(cell)[1]


def placed_task(cell: bytes) -> tuple[int, Task]:
    """The same, and its place among the tasks of its job."""
    end = 4 + int.from_bytes(cell[:4], "big")
    head, task = _decode_head(cell[4:end]), decode_task(cell[end:])
    if not head[_OFFERED]:
        return head[_PLACE], task if head[_STATE] != "q" else _waiting(task)
    offered_at = moment_of(head[_OFFERED])
    task = replace(
        task,
        state=STATES[head[_STATE]],
        worker_id=head[_WORKER],
        session=head[_SESSION],
        price=head[_PRICE],
        offered_at=offered_at,
        seen_at=offered_at,
    )
    return head[_PLACE], task


def _waiting(task: Task) -> Task:
    """The task, whose offer may have come too late for its worker."""
    if task.state is not AttemptState.OFFERED:
        return task
    return requeued(task)


def record_of(collection: str, key: str, cell: bytes) -> Record:
    """A record as it was written."""
    end = 4 + int.from_bytes(cell[:4], "big")
    head = _decode_head(cell[4:end])
    due = moment_of(head[_DUE]) if head[_DUE] is not False else None
    return Record(collection, key, cell[end:], head[_REVISION], due)


def records_of(collection: str, found: Sequence[bytes]) -> list[Record]:
    """Keys and cells in turn."""
    return [record_of(collection, found[n].decode(), found[n + 1]) for n in range(0, len(found), 2)]


def worker_of(row: Sequence[bytes]) -> Worker:
    """The worker under the session that the store gave it, with the version of its record."""
    body, session, notes = row
    return replace(_decode_worker(body), session=int(session), record_version=int(notes))


def entry_of(row: tuple[bytes, Sequence[bytes]]) -> OutboxEntry:
    """An entry of the outbox, under the numbers that the store gave it."""
    number, (_, job_id, _, first_seq, _, body) = row
    told = _decode_told(body)
    return OutboxEntry(
        int(number.partition(b"-")[0]), job_id.decode(), int(first_seq), told.events, told.summary
    )


def events_of(job_id: str, row: tuple[bytes | int, bytes]) -> list[Event]:
    """The events of one entry, numbered."""
    first_seq, body = row
    return OutboxEntry(0, job_id, int(first_seq), _decode_told(body).events).numbered()


def due_of(member: bytes, score: bytes) -> Due:
    """A deadline."""
    id, at = member[1:].decode(), moment_of(float(score))
    if member[:1] == b"J":
        return Due(at, DueKind.JOB, id, id)
    return Due(at, DueKind.TASK, id, job_id_of_task(id))


def lane_status_of(row: Sequence[Any]) -> QueueStatus:
    """The line of one client."""
    queue_key, client, waiting, oldest = row
    since = datetime.fromtimestamp(float(oldest), UTC)
    return QueueStatus(parse_queue_key(queue_key.decode()), client.decode(), waiting, since)
