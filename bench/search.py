"""Searches among many jobs: `python -m bench.search [--jobs N] [--postgres URI] [--quick] [--json FILE]`.

Makes a history of so many jobs by bulk SQL, then times typical searches through `HistoryStorage.search` and `tally`, beside one
raw indexed query in the same run, so that machines can be told from faults. Then what `record` costs per entry, with search
attributes and without. SQLite always; PostgreSQL where a URI is given, or where a server is installed (a throwaway one is started).
"""

import argparse
import asyncio
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from regista.history.postgres import PostgresHistory
from regista.history.query import Query, field_named, parse_query
from regista.history.sql import search_text
from regista.history.sql_builder import SqliteSql
from regista.history.sqlite import SqliteHistory
from regista.model import Event, EventType, JobSummary, OutboxEntry
from regista.model.attributes import declared_types

from .search_rows import ATTRIBUTES, BASE, fill_postgres, fill_sqlite

FOLDER = Path(__file__).resolve().parent.parent / ".regista-bench" / f"search-{os.getpid()}"
#: No typical search takes longer, in milliseconds.
BAR_MS = 100.0
RUNS = 7
TYPES = declared_types(ATTRIBUTES)

#: Name → query. The first is the one that document 004 prints.
SEARCHES = {
    "as printed": "WorkflowType = 'TranscodeWorkflow' AND AssetType = 'video' AND ExecutionStatus = 'Failed' "
    "AND StartTime > '2024-12-01' ORDER BY StartTime DESC",
    "newest": "",
    "one asset": "AssetId = 'asset-4711'",
    "one user in a month": "UserId = 'user-42' AND StartTime BETWEEN '2026-02-01' AND '2026-03-01'",
    "common word": "AssetType = 'video'",
    "rare blueprint": "BlueprintName = 'Rare'",
    "running": "ExecutionStatus = 'Running'",
    "quarantined": "ExecutionStatus = 'quarantined'",
    "prefix": "AssetId STARTS_WITH 'asset-4711'",
    "large files, failed": "FileSizeBytes > 999000000 AND ExecutionStatus = 'Failed'",
    "largest files": "FileSizeBytes > 999990000 ORDER BY FileSizeBytes DESC",
    "slow ones of a day": "StartTime > '2026-02-01' AND StartTime < '2026-02-02' AND ExecutionDuration > '9s'",
}
TALLIES = {
    "count: failed by blueprint": ("ExecutionStatus = 'Failed'", "BlueprintName"),
    "count: a day by status": ("StartTime > '2026-02-01' AND StartTime < '2026-02-02'", "ExecutionStatus"),
    "count: one user by type": ("UserId = 'user-42'", "AssetType"),
}


async def timed(work: Callable[[], Awaitable[Any]], runs: int) -> float:
    """Milliseconds, the median of some runs after one that warms up."""
    await work()
    took = []
    for _ in range(runs):
        began = time.perf_counter()
        await work()
        took.append((time.perf_counter() - began) * 1000)
    return median(took)


async def measure(
    history: SqliteHistory | PostgresHistory, jobs: int, raw: Callable[[], Awaitable[Any]], runs: int
) -> list[dict[str, Any]]:
    """A line for each search: what it took, and how often the raw query fits into that."""
    name = type(history).__name__
    base = await timed(raw, runs)
    lines: list[dict[str, Any]] = [line(name, jobs, "raw: 100 rows by an index", base, base)]
    for title, text in SEARCHES.items():
        query = parse_query(text, TYPES)
        ms = await timed(lambda query=query: history.search(query), runs)  # type: ignore[misc]
        lines.append(line(name, jobs, title, ms, base, plan=await plan_of(history, query)))
    for title, (text, by) in TALLIES.items():
        query, field = parse_query(text, TYPES), field_named(by, TYPES)
        ms = await timed(lambda query=query, field=field: history.count(query, field), runs)  # type: ignore[misc]
        lines.append(line(name, jobs, title, ms, base))
    return lines


def line(history: str, jobs: int, title: str, ms: float, base: float, plan: str = "") -> dict[str, Any]:
    """One figure."""
    ratio = ms / base if base else 0.0
    return {"history": history, "jobs": jobs, "search": title, "ms": ms, "ratio": ratio, "plan": plan}


async def plan_of(history: SqliteHistory | PostgresHistory, query: Query) -> str:
    """What led to the rows."""
    chosen = await history._index_for(query)
    if isinstance(history, PostgresHistory) or chosen is None:
        return "" if chosen is None else chosen.name
    sql = SqliteSql()
    text = f"EXPLAIN QUERY PLAN {search_text(sql, query, chosen, None, 100)}"
    rows = await history._run(lambda connection: connection.execute(text, sql.named()).fetchall())
    return str(rows[0][3])


# -- writing ---------------------------------------------------------------------------------------


async def recording(history: SqliteHistory | PostgresHistory, rich: bool, jobs: int) -> float:
    """Microseconds for an entry, where each job has four, each in a batch of its own: the dearest way."""
    first = await history.cursor() + 1
    entries = [
        entry(first + step * jobs + n, f"new-{first}-{n}", n, step, rich)
        for step in range(4)
        for n in range(jobs)
    ]
    began = time.perf_counter()
    for start in range(0, len(entries), 1000):
        await history.record(entries[start : start + 1000])
    return (time.perf_counter() - began) / len(entries) * 1e6


def entry(number: int, job_id: str, n: int, step: int, rich: bool) -> OutboxEntry:
    """One of the four commits of a job."""
    now = datetime.now(UTC)
    attributes = {
        "AssetId": f"asset-{job_id}",
        "AssetType": "video",
        "UserId": "user-1",
        "FileSizeBytes": n * 7919,
    }
    row = JobSummary(
        job_id=job_id,
        blueprint="TranscodeWorkflow",
        version="v1",
        client="acme",
        status="finished" if step == 3 else "running",
        state="end",
        created_at=BASE + timedelta(seconds=n),
        updated_at=now,
        finished_at=now if step == 3 else None,
        search_attributes=attributes if rich else {},
    )
    return OutboxEntry(number, job_id, step * 2 + 1, (Event(type=EventType.STATE_STARTED, at=now),) * 2, row)


# -- the two ---------------------------------------------------------------------------------------


async def on_sqlite(jobs: int, runs: int) -> list[dict[str, Any]]:
    """All figures of SQLite."""
    FOLDER.mkdir(parents=True)
    path = FOLDER / "history.db"
    history = SqliteHistory(path)
    await history.start()
    lines = [
        line("SqliteHistory", 0, f"record, {'with' if rich else 'without'} attributes (µs)", us, us)
        for rich in (False, True)
        for us in [await recording(history, rich, 5000)]
    ]
    await history.stop()
    fill_sqlite(path, jobs)
    await history.start()
    reader = sqlite3.connect(path)
    text = "SELECT * FROM regista_jobs WHERE client = 'acme' ORDER BY created_at DESC, job_id DESC LIMIT 100"

    async def raw() -> Any:
        return reader.execute(text).fetchall()

    try:
        return lines + await measure(history, jobs, raw, runs)
    finally:
        reader.close()
        await history.stop()


async def on_postgres(uri: str, jobs: int, runs: int) -> list[dict[str, Any]]:
    """All figures of PostgreSQL, in an empty schema."""
    history = PostgresHistory(uri)
    await history.start()
    try:
        lines = [
            line("PostgresHistory", 0, f"record, {'with' if rich else 'without'} attributes (µs)", us, us)
            for rich in (False, True)
            for us in [await recording(history, rich, 5000)]
        ]
        for text in fill_postgres(jobs):
            await history._ask(text, timeout_s=600.0)
        text = (
            "SELECT * FROM regista_jobs WHERE client = 'acme' ORDER BY created_at DESC, job_id DESC LIMIT 100"
        )
        return lines + await measure(history, jobs, lambda: history._ask(text), runs)
    finally:
        await history.stop()


@asynccontextmanager
async def a_server(given: str) -> AsyncIterator[str]:
    """The URI of a schema to use; empty where there is no server."""
    if given:
        yield given
        return
    try:
        from tests.postgres_server import PostgresServer, postgres_binary

        binary = postgres_binary(lambda name: shutil.which(name) or "")
    except ImportError:
        binary = ""
    if not binary or not Path(binary).with_name("initdb").exists():
        yield ""
        return
    server = await asyncio.to_thread(PostgresServer(binary).__enter__)
    try:
        yield await asyncio.to_thread(server.place)
    finally:
        await asyncio.to_thread(server.close)


async def run(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """What the command line asks for."""
    runs = 3 if asked.quick else RUNS
    lines = await on_sqlite(asked.jobs, runs)
    show(lines)
    async with a_server(asked.postgres) as uri:
        if not uri:
            print("no PostgreSQL here: its figures are missing")
            return lines
        further = await on_postgres(uri, asked.jobs, runs)
        show(further)
    return lines + further


def show(lines: list[dict[str, Any]]) -> None:
    """The figures, as a table."""
    for each in lines:
        slow = "  above the bar" if each["jobs"] and each["ms"] > BAR_MS else ""
        name, title = each["history"].removesuffix("History"), each["search"]
        print(
            f"{name:<9} {title:<38} {each['ms']:>9.2f}  x{each['ratio']:<7.1f} {each['plan']}{slow}",
            flush=True,
        )


def main() -> int:
    """Run, print, and fail only where something breaks down: machines differ."""
    parser = argparse.ArgumentParser(prog="python -m bench.search", description=__doc__)
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="default a million; --quick: 20,000")
    parser.add_argument("--postgres", default="", metavar="URI", help="an empty schema on a server of yours")
    parser.add_argument("--quick", action="store_true", help="few jobs, few runs: a look, not a figure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write JSON lines there")
    asked = parser.parse_args()
    asked.jobs = asked.jobs or (20_000 if asked.quick else 1_000_000)
    try:
        lines = asyncio.run(run(asked))
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    if asked.json:
        asked.json.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
