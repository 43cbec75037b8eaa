"""Several recorders at once, each with connections of its own, as orchestrators on one store have them (FENCES 4)."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from regista.errors import HistoryUnavailable
from regista.history import recorder as recorder_module
from regista.history.postgres import PostgresHistory
from regista.history.reader import read_events
from regista.history.recorder import HistoryRecorder
from regista.model import Event, OutboxEntry
from regista.storage.base import OutboxPage
from regista.testing.conformance.history import make_entry, make_summary, named, running, seqs
from regista.testing.conformance.history_kit import summary_of
from tests.conftest import Require
from tests.postgres_server import PostgresServer, serving


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[PostgresServer]:
    yield from serving(require)


@pytest.fixture
def place(server: PostgresServer) -> str:
    return server.place()


class SharedOutbox:
    """The outbox of a store that several recorders empty. It remembers the highest number that was pruned."""

    def __init__(self) -> None:
        self.entries: list[OutboxEntry] = []
        self.last = 0
        self.pruned = 0

    def add(self, job_id: str, first_seq: int) -> None:
        self.last += 1
        self.entries.append(
            make_entry(self.last, job_id, first_seq, 2, make_summary(job_id, f"seq {first_seq}"))
        )

    async def outbox(self, after: int, limit: int) -> OutboxPage:
        found = [entry for entry in self.entries if entry.number > after][:limit]
        return OutboxPage(found, max(self.last, after))

    async def skip_outbox_numbers(self, above: int) -> int:
        self.last += above
        return self.last - above

    async def prune(self, upto: int) -> None:
        self.pruned = max(self.pruned, upto)
        self.entries = [entry for entry in self.entries if entry.number > upto]

    async def tail(self, job_id: str, after_seq: int) -> list[Event]:
        mine = (entry for entry in self.entries if entry.job_id == job_id)
        return [event for entry in mine for event in entry.numbered() if event.seq > after_seq]


@asynccontextmanager
async def stranger(place: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(place)
    try:
        yield connection
    finally:
        await connection.close()


async def blocked(connection: "asyncpg.Connection[asyncpg.Record]", count: int) -> list[int]:
    """The backends that wait for a lock, once there are so many."""
    question = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'WITH moved%'"
    while True:
        found = [row["pid"] for row in await connection.fetch(question)]
        if len(found) >= count:
            return found
        await asyncio.sleep(0.01)


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await done():
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("first", ["the early one", "the late one"])
async def test_batches_that_overlap_and_meet_leave_every_entry_once(place: str, first: str) -> None:
    entries = [make_entry(number, f"job-{number % 3}", number) for number in range(1, 21)]
    batches = [entries[:10], entries[4:]]
    if first == "the late one":
        batches.reverse()

    async with (
        running(PostgresHistory(place)) as one,
        running(PostgresHistory(place)) as two,
        stranger(place) as other,
        stranger(place) as observer,
    ):
        async with other.transaction():
            await other.execute("LOCK TABLE regista_entries")
            writing = [asyncio.create_task(one.record(batches[0]))]
            await blocked(observer, 1)
            writing.append(asyncio.create_task(two.record(batches[1])))
            await blocked(observer, 2)
        await asyncio.gather(*writing)
        found = await two.entries(0)
        assert [entry.number for entry in found.entries] == list(range(1, 21))
        assert await one.cursor() == await two.cursor() == 20


async def test_a_recorder_that_dies_in_the_middle_takes_its_batch_along_and_no_other(place: str) -> None:
    entries = [make_entry(number, f"job-{number}") for number in range(1, 21)]

    async with (
        running(PostgresHistory(place)) as one,
        running(PostgresHistory(place)) as two,
        stranger(place) as other,
        stranger(place) as undertaker,
    ):
        await one.record(entries[:4])
        async with other.transaction():
            await other.execute("LOCK TABLE regista_entries")
            dying = asyncio.create_task(one.record(entries[:10]))
            (pid,) = await blocked(undertaker, 1)
            going_on = asyncio.create_task(two.record(entries[4:8]))
            await blocked(undertaker, 2)
            await undertaker.fetch("SELECT pg_terminate_backend($1)", pid)
            with pytest.raises(HistoryUnavailable, match=r"terminating connection|connection was closed"):
                await dying
        await going_on
        # What only the dead one had is not there, and the cursor does not say so.
        assert await two.cursor() == 8
        assert [entry.number for entry in (await two.entries(0)).entries] == list(range(1, 9))
        await one.record(entries[8:])  # and its connections come back
        assert await one.cursor() == 20


class Watch:
    """Looks again and again, in one snapshot each time, whether the cursor speaks the truth."""

    def __init__(self, outbox: SharedOutbox) -> None:
        self._outbox = outbox
        self.looks = 0
        self._cursor = 0

    async def keep(self, place: str) -> None:
        async with stranger(place) as connection:
            while True:
                pruned = self._outbox.pruned
                row = await connection.fetchrow(
                    "SELECT (SELECT value FROM regista_cursor) AS cursor, array_agg(number ORDER BY number) AS numbers "
                    "FROM regista_entries"
                )
                assert row is not None
                numbers = row["numbers"] or []
                assert row["cursor"] >= self._cursor, "the cursor moved back"
                assert numbers == list(range(1, row["cursor"] + 1)), (
                    "the cursor passed an entry, or one is double"
                )
                assert pruned <= row["cursor"], "an entry was pruned that is not recorded"
                self._cursor = row["cursor"]
                self.looks += 1
                await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(4))
def test_recorders_that_meet_crash_and_come_back_never_make_a_hole(
    place: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "SYNC_INTERVAL_S", 0.0)
    chance = random.Random(seed)
    outbox = SharedOutbox()
    deaths: list[HistoryRecorder] = []
    seen = dict.fromkeys(("a", "b", "c"), 0)

    def happen() -> None:
        for _ in range(chance.randrange(6)):
            job_id = chance.choice(list(seen))
            outbox.add(job_id, seen[job_id] * 2 + 1)
            seen[job_id] += 1

    async def work(history: PostgresHistory, limit: int) -> None:
        recorder = HistoryRecorder(outbox, history, limit=limit)
        for _ in range(15):
            happen()
            try:
                await recorder.run_once()
            except HistoryUnavailable:  # killed; it asks history where it was
                deaths.append(recorder)
            if chance.random() < 0.2:  # another process in its place
                recorder = HistoryRecorder(outbox, history, limit=limit)
            await asyncio.sleep(chance.random() / 200)

    async def kill(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        question = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'regista' "
            "AND pid <> pg_backend_pid() AND query LIKE 'WITH moved%' AND state = 'active'"
        )
        while True:
            await connection.fetch(question)
            await asyncio.sleep(chance.random() / 50)

    async def body() -> None:
        watch = Watch(outbox)
        async with (
            running(PostgresHistory(place)) as one,
            running(PostgresHistory(place)) as two,
            running(PostgresHistory(place)) as three,
            stranger(place) as killer,
        ):

            async def drained() -> bool:
                try:
                    await HistoryRecorder(outbox, two).drain()
                except HistoryUnavailable:  # the last death may not have got about
                    return False
                return True

            looking = asyncio.create_task(watch.keep(place))
            killing = asyncio.create_task(kill(killer))
            await asyncio.gather(work(one, 3), work(two, 5), work(three, 50))
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
            await until(drained)
            looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking  # or what it saw
            assert watch.looks > 3
            assert deaths, "nobody was killed in the middle"
            assert outbox.entries == []
            assert await two.cursor() == outbox.last
            for job_id, count in seen.items():
                assert seqs(await two.events(job_id)) == list(range(1, 2 * count + 1))
                row = await summary_of(two, job_id)
                assert (row and row.status) == (f"seq {2 * count - 1}" if count else None)

    asyncio.run(body())


def test_a_recorder_outlives_an_absence_of_the_server_and_loses_nothing(
    server: PostgresServer, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MAX_BACKOFF_S", 0.05)
    outbox = SharedOutbox()

    async def body() -> None:
        async with running(PostgresHistory(place)) as history:
            recorder = HistoryRecorder(outbox, history)

            async def is_recorded() -> bool:
                return await history.cursor() == outbox.last

            async def is_empty() -> bool:
                return not outbox.entries

            await recorder.start()
            outbox.add("job-1", 1)
            recorder.wake()
            await until(is_recorded)
            await asyncio.to_thread(server.stop)
            for first_seq in (3, 5, 7):
                outbox.add("job-1", first_seq)
                recorder.wake()
                await asyncio.sleep(0.05)
            assert await outbox.tail("job-1", 2)  # whoever reads it meanwhile
            with pytest.raises(HistoryUnavailable):
                await read_events(outbox, history, "job-1")
            await asyncio.to_thread(server.start)
            recorder.wake()
            await until(is_empty)
            await recorder.stop()
            assert named(await history.events("job-1")) == [("job-1", seq) for seq in range(1, 9)]

    asyncio.run(body())


async def test_stop_without_a_server_leaves_the_rest_in_the_outbox(
    server: PostgresServer, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MAX_BACKOFF_S", 3600.0)
    outbox = SharedOutbox()

    async with running(PostgresHistory(place)) as history:
        recorder = HistoryRecorder(outbox, history)
        await asyncio.to_thread(server.stop)
        outbox.add("job-1", 1)
        await recorder.start()
        await recorder.stop()
        assert len(outbox.entries) == 1
        await asyncio.to_thread(server.start)
        await HistoryRecorder(outbox, history).drain()
        assert outbox.entries == []
        assert seqs(await history.events("job-1")) == [1, 2]
