"""The jobs of `bench.search`, made by the databases themselves: row by row through Python would take minutes."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from regista.history.query.index import key_of

#: The oldest job. One follows every five seconds, so a million are two months.
BASE = datetime(2026, 1, 1, tzinfo=UTC)
EVERY_S = 5
ATTRIBUTES = {
    "AssetId": "Keyword",
    "AssetType": "Keyword",
    "UserId": "Keyword",
    "FileName": "Text",
    "FileSizeBytes": "Long",
}

#: Columns that both make alike from a number n: blueprint, status, client.
_BLUEPRINT = (
    "CASE WHEN n % 10007 = 0 THEN 'Rare' WHEN n % 5 < 3 THEN 'TranscodeWorkflow' WHEN n % 5 = 3 THEN 'Ingest' "
    "ELSE 'Publish' END"
)
_STATUS = (
    "CASE WHEN n % 50 = 0 THEN 'failed' WHEN n % 333 = 0 THEN 'cancelled' WHEN n % 100003 = 0 THEN 'quarantined' "
    "WHEN n % 1009 = 0 THEN 'waiting_for_worker' ELSE 'finished' END"
)
_CLIENT = "CASE n % 4 WHEN 0 THEN 'other' ELSE 'acme' END"
_TYPE = "CASE n % 3 WHEN 0 THEN 'image' WHEN 1 THEN 'video' ELSE 'audio' END"
#: A number that jumps about, below 10^9.
_SIZE = "(n * 7919 * 104729) % 1000000000"


def fill_sqlite(path: Path, jobs: int) -> None:
    """Write so many jobs, and what leads to them."""
    connection = sqlite3.connect(path)
    connection.create_function("key_of", 1, key_of, deterministic=True)
    connection.executescript(
        "PRAGMA synchronous = OFF; PRAGMA cache_size = -400000; PRAGMA temp_store = MEMORY"
    )
    series = f"WITH RECURSIVE series (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < {jobs})"
    at = f"CAST(({BASE.timestamp()} + n * {EVERY_S}) * 1000000 AS INTEGER)"
    name = "('clip ' || (n % 977) || ' of the holiday.mp4')"
    attributes = (
        f"json_object('AssetId', 'asset-' || (n % 200000), 'AssetType', {_TYPE}, 'UserId', 'user-' || (n % 1000), "
        f"'FileName', {name}, 'FileSizeBytes', {_SIZE})"
    )
    words = "' FileName:clip FileName:holiday FileName:mp4 FileName:of FileName:the FileName:' || (n % 977) || ' '"
    connection.execute(
        f"{series} INSERT INTO regista_jobs SELECT printf('job-%08d', n), n, {_CLIENT}, {_BLUEPRINT}, 'v1', {_STATUS}, 'end', "
        f"{at}, {at} + 1000000, CASE WHEN {_STATUS} IN ('finished', 'failed', 'cancelled') "
        f"THEN {at} + (1 + n % 10) * 1000000 END, "
        f"NULL, NULL, {attributes}, {words} FROM series"
    )
    for attribute, value in _led():
        connection.execute(
            f"{series} INSERT INTO regista_attributes SELECT '{attribute}', key_of({value}), {at}, printf('job-%08d', n) "
            "FROM series ORDER BY 2, 3"
        )
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def _led() -> list[tuple[str, str]]:
    return [
        ("AssetId", "'asset-' || (n % 200000)"),
        ("AssetType", _TYPE),
        ("UserId", "'user-' || (n % 1000)"),
        ("FileSizeBytes", _SIZE),
    ]


def fill_postgres(jobs: int) -> Iterator[str]:
    """The statements that write the same."""
    at = f"(({BASE.timestamp()} + n * {EVERY_S}) * 1000000)::BIGINT"
    job_id = "'job-' || lpad(n::TEXT, 8, '0')"
    attributes = (
        f"jsonb_build_object('AssetId', 'asset-' || (n % 200000), 'AssetType', {_TYPE}, 'UserId', 'user-' || (n % 1000), "
        f"'FileName', 'clip ' || (n % 977) || ' of the holiday.mp4', 'FileSizeBytes', {_SIZE})"
    )
    words = "' FileName:clip FileName:holiday FileName:mp4 FileName:of FileName:the FileName:' || (n % 977) || ' '"
    yield (
        f"INSERT INTO regista_jobs SELECT {job_id}, n, {_CLIENT}, {_BLUEPRINT}, 'v1', {_STATUS}, 'end', {at}, {at}, "
        f"CASE WHEN {_STATUS} IN ('finished', 'failed', 'cancelled') THEN {at} + (1 + n % 10) * 1000000 END, "
        f"NULL, NULL, {attributes}, {words} FROM generate_series(1::BIGINT, {jobs}) AS n"
    )
    for attribute, value in _led():
        key = f"'s' || ({value})"
        if attribute == "FileSizeBytes":  # the bits of a double, the first turned round: as `key_of` has it
            bits = f"encode(float8send(({value})::FLOAT8), 'hex')"
            key = f"'n' || translate(left({bits}, 1), '01234567', '89abcdef') || substr({bits}, 2)"
        yield (
            f"INSERT INTO regista_attributes SELECT '{attribute}', {key}, {at}, {job_id} "
            f"FROM generate_series(1::BIGINT, {jobs}) AS n ORDER BY 2, 3"
        )
    yield "ANALYZE regista_jobs"
    yield "ANALYZE regista_attributes"
