"""What every history must do: one test per promise in `regista.history.base`.

A backend is held to it by a subclass with one fixture::

    class TestMyHistory(HistoryConformance):
        @pytest.fixture
        def history_factory(self, tmp_path):
            return lambda: MyHistory(tmp_path / "history.db")
"""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from ...model import Event, EventType, OutboxEntry
from .history_kit import (
    START,
    HistoryFactory,
    make_entry,
    make_summary,
    named,
    on_a_loop,
    running,
    seqs,
    summaries_of,
    summary_of,
)
from .history_search import SearchConformance

__all__ = [
    "START",
    "HistoryConformance",
    "HistoryFactory",
    "make_entry",
    "make_summary",
    "named",
    "on_a_loop",
]
__all__ += ["running", "seqs"]


class HistoryConformance(SearchConformance):
    """The suite. `history_factory` makes a history; called again, another one on the same place."""

    #: Whether a second history on the same place finds what a first one recorded. One that cannot says so.
    reopens = True

    @pytest.fixture
    def history_factory(self) -> HistoryFactory:
        """Supplied by the subclass."""
        raise NotImplementedError

    # start, stop, cursor

    @on_a_loop
    async def test_stop_before_start_and_stop_twice_are_fine(self, history_factory: HistoryFactory) -> None:
        history = history_factory()
        await history.stop()
        await history.start()
        await history.stop()
        await history.stop()

    @on_a_loop
    async def test_the_cursor_of_a_new_history_is_zero(self, history_factory: HistoryFactory) -> None:
        async with running(history_factory()) as history:
            assert await history.cursor() == 0
            assert await history.sync() == 0

    @on_a_loop
    async def test_the_cursor_is_the_last_entry_recorded(self, history_factory: HistoryFactory) -> None:
        async with running(history_factory()) as history:
            await history.record([make_entry(1, "job-1"), make_entry(2, "job-2")])
            await history.record([make_entry(7, "job-3")])
            assert await history.cursor() == 7

    @on_a_loop
    async def test_what_was_recorded_is_there_after_a_restart(self, history_factory: HistoryFactory) -> None:
        summary = make_summary("job-1")
        async with running(history_factory()) as history:
            await history.record([make_entry(3, events=2, summary=summary)])
        async with running(history_factory()) as history:
            assert await history.cursor() == (3 if self.reopens else 0)
            assert seqs(await history.events("job-1")) == ([1, 2] if self.reopens else [])
            assert await summary_of(history, "job-1") == (summary if self.reopens else None)

    # record

    @on_a_loop
    async def test_recording_nothing_changes_nothing(self, history_factory: HistoryFactory) -> None:
        async with running(history_factory()) as history:
            await history.record([make_entry(4)])
            await history.record([])
            assert await history.cursor() == 4

    @on_a_loop
    async def test_entries_recorded_twice_are_there_once(self, history_factory: HistoryFactory) -> None:
        entries = [make_entry(1, events=3), make_entry(2, first_seq=4, events=2)]
        async with running(history_factory()) as history:
            await history.record(entries)
            await history.record([*entries, make_entry(3, first_seq=6)])
            assert seqs(await history.events("job-1")) == [1, 2, 3, 4, 5, 6]
            assert await history.cursor() == 3

    @on_a_loop
    async def test_an_entry_that_is_there_is_left_alone(self, history_factory: HistoryFactory) -> None:
        first = make_entry(1)
        altered = replace(first, events=(replace(first.events[0], message="altered"),))
        async with running(history_factory()) as history:
            await history.record([first])
            await history.record([altered])
            assert seqs(await history.events("job-1")) == [1]

    @on_a_loop
    async def test_an_old_entry_does_not_move_the_cursor_back(self, history_factory: HistoryFactory) -> None:
        async with running(history_factory()) as history:
            await history.record([make_entry(5, "job-2")])
            await history.record([make_entry(4, "job-1")])
            assert await history.cursor() == 5
            assert seqs(await history.events("job-1")) == [1]

    @on_a_loop
    async def test_an_entry_without_events_hides_none(self, history_factory: HistoryFactory) -> None:
        async with running(history_factory()) as history:
            await history.record([make_entry(1, events=0, summary=make_summary("job-1", "pending"))])
            await history.record([make_entry(2, events=2)])
            assert seqs(await history.events("job-1")) == [1, 2]
            assert await history.cursor() == 2
            assert await summary_of(history, "job-1") == make_summary("job-1", "pending")

    @on_a_loop
    async def test_many_entries_in_one_call_are_all_there(self, history_factory: HistoryFactory) -> None:
        jobs = [f"job-{index:03}" for index in range(300)]
        entries = [
            make_entry(number, job_id, first_seq, events=2, summary=make_summary(job_id, status))
            for number, (first_seq, status, job_id) in enumerate(
                [(1, "running", job_id) for job_id in jobs] + [(3, "finished", job_id) for job_id in jobs], 1
            )
        ]
        async with running(history_factory()) as history:
            await history.record(entries)
            assert await history.cursor() == 600
            for job_id in (jobs[0], jobs[150], jobs[-1]):
                assert named(await history.events(job_id)) == [(job_id, seq) for seq in (1, 2, 3, 4)]
            finished = await summaries_of(history, status="finished", limit=1000)
            assert [summary.job_id for summary in finished] == jobs[::-1]

    @on_a_loop
    async def test_what_no_encoder_takes_does_not_keep_history_out(
        self, history_factory: HistoryFactory
    ) -> None:
        endless: list[Any] = []
        endless.append(endless)
        detail = {"huge": 1 << 80, "half": "\ud800", "object": object(), "endless": endless, "fine": "yes"}
        odd = Event(type=EventType.TASK_FAILED, at=START, message="no such file: \udcff", detail=detail)
        attributes = {"huge": 1 << 80, "half": "\ud800"}
        summary = make_summary("job-1", error_code="\ud800", search_attributes=attributes)
        async with running(history_factory()) as history:
            await history.record([OutboxEntry(1, "job-1", 1, (odd,), summary), make_entry(2, "job-2")])
            (event,) = await history.events("job-1")
            assert (event.type, event.seq, event.detail["fine"]) == (EventType.TASK_FAILED, 1, "yes")
            assert await summary_of(history, "job-1") is not None
            assert seqs(await history.events("job-2")) == [1]

    # sync

    @on_a_loop
    async def test_sync_returns_the_cursor_that_it_covers(self, history_factory: HistoryFactory) -> None:
        async with running(history_factory()) as history:
            await history.record([make_entry(1), make_entry(2, first_seq=2)])
            assert await history.sync() == 2
            assert await history.sync() == 2
            await history.record([make_entry(3, first_seq=3)])
            assert await history.sync() == 3

    # events

    @on_a_loop
    async def test_an_event_comes_back_as_it_was_with_its_name(self, history_factory: HistoryFactory) -> None:
        event = Event(
            type=EventType.TASK_FAILED,
            at=START,
            state="encode",
            previous_state="probe",
            next_state="repair",
            status="failure",
            task_id="task-1",
            attempt=2,
            worker_id="worker-1",
            duration_ms=12.5,
            code="PERMANENT_ERROR",
            message="naïve \x00 ünïcode 🎬 'quoted'",
            detail={"nested": {"list": [1, 2.5, None, True, "x"]}, "at": START},
            snapshot={"width": 1920},
        )
        async with running(history_factory()) as history:
            await history.record([OutboxEntry(1, "job-1", 8, (make_entry(1).events[0], event))])
            found = await history.events("job-1", after_seq=8)
            assert found == [replace(event, job_id="job-1", seq=9)]

    @on_a_loop
    async def test_events_of_an_unknown_job_are_none(self, history_factory: HistoryFactory) -> None:
        async with running(history_factory()) as history:
            await history.record([make_entry(1, "job-1")])
            assert await history.events("job-2") == []
            assert await history.events("job-1", after_seq=1) == []

    @on_a_loop
    async def test_events_are_in_order_of_seq_and_of_one_job(self, history_factory: HistoryFactory) -> None:
        async with running(history_factory()) as history:
            await history.record(
                [make_entry(1, "a", 1, 2), make_entry(2, "b", 1, 3), make_entry(3, "a", 3, 9)]
            )
            await history.record([make_entry(4, "a", 12, 1)])
            assert named(await history.events("a")) == [("a", seq) for seq in range(1, 13)]
            assert named(await history.events("b")) == [("b", 1), ("b", 2), ("b", 3)]

    @on_a_loop
    async def test_events_can_be_paged_at_any_seq(self, history_factory: HistoryFactory) -> None:
        sizes, entries, first_seq = [3, 1, 5, 2], [], 1
        for number, size in enumerate(sizes, 1):
            entries.append(make_entry(number, first_seq=first_seq, events=size))
            first_seq += size
        everything = list(range(1, first_seq))
        async with running(history_factory()) as history:
            await history.record(entries)
            for after_seq in range(first_seq):
                for limit in (1, 2, 5, 100):
                    page = seqs(await history.events("job-1", after_seq, limit))
                    assert page == everything[after_seq : after_seq + limit]

    @on_a_loop
    async def test_stories_of_many_jobs_come_together(self, history_factory: HistoryFactory) -> None:
        async with running(history_factory()) as history:
            await history.record(
                [make_entry(1, "a", 1, 2), make_entry(2, "b", 1, 3), make_entry(3, "a", 3, 9)]
            )
            stories = await history.events_of_jobs(["b", "nobody", "a"], 4)
            assert {job_id: named(events) for job_id, events in stories.items()} == {
                "a": [("a", 1), ("a", 2), ("a", 3), ("a", 4)],
                "b": [("b", 1), ("b", 2), ("b", 3)],
            }
            assert await history.events_of_jobs([]) == {}

    # summary, summaries

    @on_a_loop
    async def test_a_summary_comes_back_as_it_was(self, history_factory: HistoryFactory) -> None:
        full = make_summary(
            "job-2",
            "failed",
            created_at=START,
            updated_at=START + timedelta(microseconds=1),
            finished_at=START + timedelta(microseconds=999_999),
            parent_id="job-1",
            error_code="INVALID_INPUT_ERROR",
            search_attributes={
                "AssetType": "video 🎬",
                "Tags": ["a", "b"],
                "Size": 12,
                "Ratio": 0.5,
                "Hd": True,
            },
        )
        async with running(history_factory()) as history:
            await history.record([make_entry(1, "job-2", summary=full)])
            assert await summary_of(history, "job-2") == full
            assert await summary_of(history, "job-1") is None

    @on_a_loop
    async def test_search_attributes_come_back_as_json_has_them(
        self, history_factory: HistoryFactory
    ) -> None:
        summary = make_summary("job-1", search_attributes={"Due": START, "Pair": (1, 2)})
        async with running(history_factory()) as history:
            await history.record([make_entry(1, summary=summary)])
            found = await summary_of(history, "job-1")
            assert found is not None
            assert found.search_attributes == {"Due": "2026-03-01T12:00:00.123456Z", "Pair": [1, 2]}

    @on_a_loop
    async def test_the_newest_summary_wins(self, history_factory: HistoryFactory) -> None:
        running_, waiting = make_summary("job-1", "running"), make_summary("job-1", "waiting_for_worker")
        finished = make_summary("job-1", "finished", finished_at=START)
        async with running(history_factory()) as history:
            await history.record(
                [make_entry(1, summary=running_), make_entry(2, first_seq=2, summary=waiting)]
            )
            assert await summary_of(history, "job-1") == waiting
            await history.record([make_entry(3, first_seq=3, summary=finished), make_entry(4, first_seq=4)])
            assert await summary_of(history, "job-1") == finished

    @on_a_loop
    async def test_a_summary_of_an_older_entry_does_not_overwrite(
        self, history_factory: HistoryFactory
    ) -> None:
        older, newer = make_summary("job-1", "running"), make_summary("job-1", "finished")
        async with running(history_factory()) as history:
            await history.record([make_entry(2, first_seq=2, summary=newer)])
            await history.record([make_entry(1, first_seq=1, summary=older)])
            assert await summary_of(history, "job-1") == newer
            await history.record([make_entry(2, first_seq=2, summary=newer), make_entry(1, summary=older)])
            assert await summary_of(history, "job-1") == newer

    @on_a_loop
    async def test_summaries_are_newest_first_and_paged(self, history_factory: HistoryFactory) -> None:
        born = {
            f"job-{index}": START + timedelta(microseconds=age)
            for index, age in enumerate((9, 4, 3, 1, 1, 2, 0))
        }
        async with running(history_factory()) as history:
            await history.record(
                [make_entry(n, i, summary=make_summary(i, created_at=born[i])) for n, i in enumerate(born, 1)]
            )
            pages: list[list[str]] = []
            before = None
            while page := await summaries_of(history, before=before, limit=3):
                pages.append([summary.job_id for summary in page])
                before = (page[-1].created_at, page[-1].job_id)
            assert pages == [["job-0", "job-1", "job-2"], ["job-5", "job-4", "job-3"], ["job-6"]]

    # entries

    @on_a_loop
    async def test_entries_of_all_jobs_are_read_on_from_any_number(
        self, history_factory: HistoryFactory
    ) -> None:
        async with running(history_factory()) as history:
            await history.record(
                [make_entry(3, "b", events=2), make_entry(5, "a"), make_entry(9, "b", first_seq=3)]
            )
            entries, upto = await history.entries(0)
            assert [(entry.number, entry.job_id, entry.first_seq) for entry in entries] == [
                (3, "b", 1),
                (5, "a", 1),
                (9, "b", 3),
            ]
            assert upto == 9
            assert named(entries[0].numbered()) == [("b", 1), ("b", 2)]
            entries, upto = await history.entries(3, limit=1)
            assert ([entry.number for entry in entries], upto) == ([5], 5)
            assert await history.entries(9) == ([], 9)

    @on_a_loop
    async def test_entries_of_one_client_say_how_far_all_were_looked_at(
        self, history_factory: HistoryFactory
    ) -> None:
        rows = [make_summary("job-1", client="acme"), make_summary("job-2", client="other")]
        async with running(history_factory()) as history:
            await history.record([make_entry(n, row.job_id, summary=row) for n, row in enumerate(rows, 1)])
            await history.record([make_entry(3, "job-2", 2), make_entry(4, "job-1", 2)])
            entries, upto = await history.entries(0, limit=3, client="acme")
            assert ([entry.number for entry in entries], upto) == ([1], 3)
            entries, upto = await history.entries(upto, limit=3, client="acme")
            assert ([entry.number for entry in entries], upto) == ([4], 4)

    @on_a_loop
    async def test_summaries_are_filtered_by_all_that_is_given(self, history_factory: HistoryFactory) -> None:
        rows = [
            make_summary("job-1", "finished", client="acme", blueprint="transcode"),
            make_summary("job-2", "failed", client="acme", blueprint="transcode"),
            make_summary("job-3", "failed", client="other", blueprint="transcode"),
            make_summary("job-4", "finished", client="acme", blueprint="publish"),
        ]
        async with running(history_factory()) as history:
            await history.record([make_entry(n, row.job_id, summary=row) for n, row in enumerate(rows, 1)])
            assert await summaries_of(history, client="acme") == [rows[3], rows[1], rows[0]]
            assert await summaries_of(history, blueprint="publish") == [rows[3]]
            assert await summaries_of(history, status="failed") == [rows[2], rows[1]]
            assert await summaries_of(history, status="finished", before=(START, "job-4")) == [rows[0]]
            assert await summaries_of(history, client="acme", blueprint="transcode", status="failed") == [
                rows[1]
            ]
            assert await summaries_of(history, client="nobody") == []
