"""What every history must do beside keeping events: find, count, forget, and tell a story anew."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from ...history.query import Query, parse_query
from ...history.query.counts import Durations, Group, JobCounts, Member
from ...history.query.evaluate import sort_position
from ...model import JobSummary, OutboxEntry
from ...model.attributes import declared_types
from .history_kit import START, HistoryFactory, make_entry, make_summary, on_a_loop, running, summary_of

ATTRIBUTES = declared_types(
    {
        "Asset": "Keyword",
        "Name": "Text",
        "Size": "Int",
        "Hd": "Bool",
        "Due": "Datetime",
        "Tags": "KeywordList",
    }
)


def asks(text: str) -> Query:
    """The query of a text."""
    return parse_query(text, ATTRIBUTES)


def listed(rows: Sequence[JobSummary]) -> list[str]:
    """The ids alone."""
    return [row.job_id for row in rows]


def told(*rows: JobSummary) -> list[OutboxEntry]:
    """An entry for each row, in their order."""
    return [make_entry(number, row.job_id, summary=row) for number, row in enumerate(rows, 1)]


def ended(job_id: str, age_s: float, took_s: float = 1.0, **fields: Any) -> JobSummary:
    """A job that has finished, created so many seconds before `START`."""
    created = START - timedelta(seconds=age_s)
    over = created + timedelta(seconds=took_s)
    more: dict[str, Any] = {"status": "finished", "created_at": created, "finished_at": over, **fields}
    return make_summary(job_id, **more)


def retold(entry: OutboxEntry, word: str) -> OutboxEntry:
    """The same seqs, another story."""
    return replace(entry, events=tuple(replace(event, message=word) for event in entry.events))


class SearchConformance:
    """A part of the suite; see `HistoryConformance`."""

    # search

    @on_a_loop
    async def test_a_search_finds_what_fits_in_its_order(self, history_factory: HistoryFactory) -> None:
        rows = [
            ended("a", 30, search_attributes={"Asset": "x", "Size": 3, "Name": "Summer Holiday"}),
            ended("b", 20, 9.0, search_attributes={"Asset": "xy", "Size": 1, "Tags": ["red"]}),
            ended("c", 10, status="failed", search_attributes={"Asset": "x", "Hd": True, "Due": START}),
            make_summary("d", "running", client="other"),
        ]
        asked = {
            "": ["d", "c", "b", "a"],
            "Asset = 'x'": ["c", "a"],
            "Asset STARTS_WITH 'x' ORDER BY Size": ["b", "a", "c"],
            "Size >= 1 ORDER BY Size DESC": ["a", "b"],
            "Name = 'holiday'": ["a"],
            "Tags IN ('red', 'blue')": ["b"],
            "Hd = true AND Due = '2026-03-01T12:00:00.123456Z'": ["c"],
            "Asset IS NULL": ["d"],
            "NOT Asset = 'x'": ["b"],
            "ExecutionDuration > '5s' OR ExecutionStatus = 'Running'": ["d", "b"],
            "ClientName != 'other' ORDER BY CloseTime DESC": ["c", "b", "a"],
        }
        async with running(history_factory()) as history:
            await history.record(told(*rows))
            for text, found in asked.items():
                assert listed(await history.search(asks(text))) == found, text

    @on_a_loop
    async def test_a_search_is_paged_without_gap_or_repetition(self, history_factory: HistoryFactory) -> None:
        rows = [ended(f"job-{n}", 0, search_attributes={"Size": n // 3} if n % 4 else {}) for n in range(10)]
        query = asks("ORDER BY Size DESC")
        async with running(history_factory()) as history:
            await history.record(told(*rows))
            everything = listed(await history.search(query))
            assert sorted(everything) == sorted(listed(rows))
            for size in (1, 2, 3, 7):
                seen: list[str] = []
                after = None
                while page := await history.search(query, after, size):
                    seen += listed(page)
                    after = sort_position(query.order, page[-1])
                assert seen == everything

    @on_a_loop
    async def test_a_search_goes_by_the_newest_attributes(self, history_factory: HistoryFactory) -> None:
        before, after = (
            make_summary("a", search_attributes={"Asset": asset, "Name": asset}) for asset in ("old", "new")
        )
        async with running(history_factory()) as history:
            await history.record([make_entry(1, "a", summary=before)])
            assert listed(await history.search(asks("Asset = 'old'"))) == ["a"]
            await history.record([make_entry(2, "a", 2, summary=after)])
            for field in ("Asset", "Name"):
                assert await history.search(asks(f"{field} = 'old'")) == []
                assert listed(await history.search(asks(f"{field} = 'new'"))) == ["a"]

    # tally

    @on_a_loop
    async def test_a_tally_counts_groups_and_how_long_they_took(
        self, history_factory: HistoryFactory
    ) -> None:
        rows = [ended(f"f-{n}", 60, n + 1.0) for n in range(20)]
        rows += [ended("x", 60, 100.0, status="failed"), make_summary("r", "running")]
        status = parse_query("ExecutionStatus = 'Completed'", {})
        field = asks("ORDER BY ExecutionStatus").order[0].field
        async with running(history_factory()) as history:
            await history.record(told(*rows))
            finished = Durations(10.5, 10.0, 19.0)
            assert await history.count(status) == JobCounts(20, finished, [])
            assert (await history.count(asks(""), field)).groups == [
                Group("finished", 20, finished),
                Group("failed", 1, Durations(100.0, 100.0, 100.0)),
                Group("running", 1, None),
            ]
            beside = [Member("failed", 300_000_000), Member("pending", None)]
            found = await history.count(asks(""), field, without=["x", "r"], beside=beside, limit=2)
            assert found.count == 22
            assert found.groups == [
                Group("finished", 20, finished),
                Group("failed", 1, Durations(300.0, 300.0, 300.0)),
            ]
            assert await history.count(asks("Asset = 'none'"), field) == JobCounts(0, None, [])

    # expired, forget

    @on_a_loop
    async def test_only_ended_jobs_expire_oldest_first(self, history_factory: HistoryFactory) -> None:
        rows = [
            ended("old", 1000),
            make_summary("alive", "running", created_at=START - timedelta(seconds=2000)),
            make_summary("stuck", "quarantined", created_at=START - timedelta(seconds=1500)),
            ended("older", 1100, status="cancelled"),
            ended("long", 1200, 1190, status="failed"),
            ended("new", 10),
        ]
        async with running(history_factory()) as history:
            await history.record(told(*rows))
            limit = START - timedelta(seconds=500)
            assert await history.expired(limit, None) == ["older", "old"]
            assert await history.expired(limit, None, limit=1) == ["older"]
            assert await history.expired(START - timedelta(days=1), None) == []
            assert await history.expired(None, None) == []
            assert await history.expired(None, 2) == ["long", "older"]
            assert await history.expired(None, 6) == []
            assert await history.expired(None, 100) == []

    @on_a_loop
    async def test_a_forgotten_job_is_gone_with_its_events(self, history_factory: HistoryFactory) -> None:
        rows = [ended(name, 5, search_attributes={"Asset": "x", "Size": 1}) for name in ("a", "b")]
        async with running(history_factory()) as history:
            await history.record(told(*rows))
            await history.delete_jobs(["a", "nobody"])
            assert await history.events("a") == []
            assert await summary_of(history, "a") is None
            assert listed(await history.search(asks("Asset = 'x' AND Size = 1"))) == ["b"]
            assert [entry.job_id for entry in (await history.entries(0)).entries] == ["b"]
            assert await history.cursor() == 2
            await history.delete_jobs(["b"])
            assert (await history.count(asks(""))).count == 0

    # a story that is told anew

    @on_a_loop
    async def test_a_story_told_anew_takes_the_place_of_the_old_one(
        self, history_factory: HistoryFactory
    ) -> None:
        old = [make_entry(1, events=2), make_entry(2, first_seq=3, events=2), make_entry(3, first_seq=5)]
        anew = retold(make_entry(9, first_seq=2, events=2), "anew")
        async with running(history_factory()) as history:
            await history.record(old)
            await history.record([anew])
            told = await history.events("job-1")
            assert [(event.seq, event.message) for event in told] == [
                (1, "job-1/1"),
                (2, "anew"),
                (3, "anew"),
            ]
            assert await history.events("job-1", after_seq=1) == told[1:]
            assert await history.events_of_jobs(["job-1"]) == {"job-1": told}
            await history.record([make_entry(10, first_seq=4)])
            assert [event.seq for event in await history.events("job-1")] == [1, 2, 3, 4]

    @on_a_loop
    async def test_what_the_old_story_says_later_is_not_heard(self, history_factory: HistoryFactory) -> None:
        anew = retold(make_entry(9, events=2), "anew")
        async with running(history_factory()) as history:
            await history.record([anew, make_entry(4, first_seq=2), make_entry(3)])
            await history.record([make_entry(5, first_seq=3, events=4)])
            assert [event.message for event in await history.events("job-1")] == ["anew", "anew"]

    @on_a_loop
    async def test_a_key_that_is_used_again_makes_another_job_of_the_row(
        self, history_factory: HistoryFactory
    ) -> None:
        first = ended("job-1", 1000, search_attributes={"Asset": "x"})
        again = make_summary("job-1", "running", blueprint="other", search_attributes={"Asset": "x"})
        async with running(history_factory()) as history:
            await history.record([make_entry(1, events=3, summary=first)])
            await history.record([make_entry(2, events=1, summary=again)])
            assert await summary_of(history, "job-1") == again
            assert await history.search(asks("Asset = 'x'")) == [again]
            assert [event.seq for event in await history.events("job-1")] == [1]
