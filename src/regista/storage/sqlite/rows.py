"""A batch as one statement of SQLite: columns of the view `flush` (see sql/), and their values."""

from collections.abc import Collection, Iterable

import msgspec

from ..journal import CountRow, JobRow, JournalBatch, RecordRow, halves_of

_INSERT_BATCH = f"INSERT INTO flush VALUES ({', '.join(15 * '?')})"
#: An index for json_each, and the bodies glued together; of nothing, as most batches have it of most tables.
_Packed = tuple[str | None, bytearray]
_NO_ROWS: _Packed = (None, bytearray())
#: A text and its values.
Statement = tuple[str, tuple[object, ...]]
#: Bytes of bodies of one kind above which a batch becomes several statements. SQLite takes a value of 1,000,000,000 at most.
_STATEMENT_BYTES = 256 << 20
#: How bodies are glued together: not as `bytes`, for sqlite3 asks what those may be adapted to, as of None.
_glue = bytearray().join
#: Digits before the body of each job.
_COLUMNS = 21
_encode_json = msgspec.json.Encoder().encode


def statements_of(batch: JournalBatch) -> list[Statement]:
    """What writes the batch: one statement, or several where one would carry more than SQLite takes."""
    statement = _statement(batch)
    large = any(type(part) is bytearray and len(part) > _STATEMENT_BYTES for part in statement[1])
    if large and (halves := halves_of(batch)):
        return [part for half in halves for part in statements_of(half)]
    return [statement]


def _statement(batch: JournalBatch) -> Statement:
    """What writes the batch: columns of the view `flush`, and their values."""
    return _INSERT_BATCH, (
        *_pack_jobs(batch.jobs.values()),
        *_pack_kept(batch.tasks),
        *_pack_kept(batch.messages),
        *_pack_entries(batch.entries),
        batch.prune,
        *_pack_records(batch.records.values()),
        *_pack_counts(batch.counts.values()),
    )


def _pack(rows: Collection[tuple[str, bytes]]) -> _Packed:
    """Where the body of each id is, for json_each, and the bodies glued together."""
    if not rows:
        return _NO_ROWS
    places = {}
    bodies = []
    offset = 1  # substr counts from one
    for id, body in rows:
        length = len(body)
        places[id] = offset << 30 | length
        bodies.append(body)
        offset += length
    return _index(places), _glue(bodies)


def _index(rows: object) -> str | None:
    """JSON for json_each; None: no rows."""
    return _encode_json(rows).decode() if rows else None


def _pack_jobs(rows: Iterable[JobRow]) -> _Packed:
    """The same for jobs, each body behind the store's own columns."""
    places = {}
    bodies: list[bytes] = []
    offset = 1
    for id, live, seq, open_branches, body in rows:
        length = _COLUMNS + len(body)
        places[id] = offset << 30 | length
        bodies += (b"%d%010d%010d" % (live, seq, open_branches), body)
        offset += length
    return _index(places), _glue(bodies)


def _pack_kept(rows: dict[str, bytes | None]) -> tuple[str | None, bytearray, str | None]:
    """The same, and the ids of those that are dropped."""
    if not rows:
        return *_NO_ROWS, None
    kept = _pack([(id, body) for id, body in rows.items() if body is not None])
    return *kept, _index([id for id, body in rows.items() if body is None])


def _pack_entries(entries: list[tuple[int, bytes]]) -> tuple[int | None, bytearray]:
    """The number of the last, and the msgpack list of all of them."""
    if not entries:
        return None, bytearray()
    head = b"\xdd" + len(entries).to_bytes(4, "big")
    return entries[-1][0], _glue([head, *[body for _, body in entries]])


def _pack_counts(rows: Collection[CountRow]) -> _Packed:
    """An index for json_each whose rows end in offset and length, and the names glued together."""
    if not rows:
        return _NO_ROWS
    index = []
    names = []
    offset = 1
    for row in rows:
        name = row.counter.encode()
        index.append((row.used, row.expires, offset, len(name)))
        names.append(name)
        offset += len(name)
    return _index(index), _glue(names)


def _pack_records(rows: Collection[RecordRow]) -> _Packed:
    """The same for records, whose names are glued to their values."""
    if not rows:
        return _NO_ROWS
    index = []
    bodies: list[bytes] = []
    offset = 1
    for row in rows:
        parts = (row.collection.encode(), row.key.encode(), row.value)
        lengths = tuple(map(len, parts))
        index.append((row.revision, row.due, row.expires, offset, *lengths))
        bodies += parts
        offset += sum(lengths)
    return _index(index), _glue(bodies)
