import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from regista.errors import StorageError
from regista.history import recorder as recorder_module
from regista.history.memory import MemoryHistory
from regista.history.reader import read_events, read_events_of_jobs
from regista.history.recorder import HistoryRecorder
from regista.model import Event, OutboxEntry
from regista.storage.base import OutboxPage
from regista.testing.conformance.history import make_entry, seqs


class HandClock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def elapsed(self) -> float:
        return self.seconds


class ListOutbox:
    """An outbox that is a list."""

    def __init__(self) -> None:
        self.entries: list[OutboxEntry] = []
        self.last = 0
        self.pruned: list[int] = []
        self.prune_failures = 0

    def add(self, job_id: str, events: int = 1) -> None:
        self.last += 1
        mine = [entry for entry in self.entries if entry.job_id == job_id]
        first_seq = mine[-1].first_seq + len(mine[-1].events) if mine else 1
        self.entries.append(make_entry(self.last, job_id, first_seq, events))

    async def outbox(self, after: int, limit: int) -> OutboxPage:
        found = [entry for entry in self.entries if entry.number > after][:limit]
        return OutboxPage(found, max(self.last, after))

    async def skip_outbox_numbers(self, above: int) -> int:
        self.last += above
        return self.last - above

    async def prune(self, upto: int) -> None:
        if self.prune_failures:
            self.prune_failures -= 1
            raise StorageError("crashed before the prune")
        self.pruned.append(upto)
        self.entries = [entry for entry in self.entries if entry.number > upto]

    async def tail(self, job_id: str, after_seq: int) -> list[Event]:
        mine = (event for entry in self.entries if entry.job_id == job_id for event in entry.numbered())
        return [event for event in mine if event.seq > after_seq]


def filled(entries: int) -> ListOutbox:
    """So many jobs of one entry each: job-1, job-2, ..."""
    outbox = ListOutbox()
    for number in range(1, entries + 1):
        outbox.add(f"job-{number}")
    return outbox


class SpyHistory(MemoryHistory):
    """Counts; fails when told to, before or after the write; syncs as far as told."""

    def __init__(self, failures: int = 0, *, after_writing: bool = False) -> None:
        super().__init__()
        self.failures = failures
        self.after_writing = after_writing
        self.batches: list[int] = []
        self.syncs = 0
        self.synced = 0
        self.sync_lag = 0

    async def record(self, entries: Sequence[OutboxEntry]) -> None:
        if self.failures and not self.after_writing:
            self._fail()
        await super().record(entries)
        if self.failures and self.after_writing:
            self._fail()
        self.batches.append(len(entries))

    def _fail(self) -> None:
        self.failures -= 1
        raise ConnectionError("the database is away")

    async def sync(self) -> int:
        self.syncs += 1
        self.synced = max(self.synced, await super().sync() - self.sync_lag)
        return self.synced


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  (what is waited for is not ours to signal)
        await asyncio.sleep(0.001)


async def holds(history: MemoryHistory, jobs: int) -> bool:
    """Whether each of the jobs of `filled` is there, once."""
    return all([seqs(await history.events(f"job-{n}")) == [1] for n in range(1, jobs + 1)])


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of a real loop, a hundred times shorter."""
    monkeypatch.setattr(recorder_module, "POOL_S", 0.001)
    monkeypatch.setattr(recorder_module, "RECHECK_S", 0.02)
    monkeypatch.setattr(recorder_module, "BACKOFF_S", 0.001)
    monkeypatch.setattr(recorder_module, "MAX_BACKOFF_S", 0.004)


# Without a loop


async def test_run_once_records_one_batch_and_says_how_many() -> None:
    outbox, history = filled(5), SpyHistory()
    recorder = HistoryRecorder(outbox, history, limit=3)
    assert [await recorder.run_once() for _ in range(3)] == [3, 2, 0]
    assert history.batches == [3, 2]
    assert await holds(history, 5)


async def test_drain_leaves_the_outbox_empty_and_history_synced() -> None:
    outbox, history = filled(7), SpyHistory()
    await HistoryRecorder(outbox, history, limit=2).drain()
    assert outbox.entries == []
    assert history.synced == 7
    assert await holds(history, 7)


async def test_recording_goes_on_behind_the_cursor_of_the_backend() -> None:
    outbox, history = filled(4), SpyHistory()
    await history.record((await outbox.outbox(0, 3)).entries)
    assert await HistoryRecorder(outbox, history).run_once() == 1
    assert await holds(history, 4)


async def test_a_sync_happens_at_most_once_a_second_under_load() -> None:
    outbox, history, clock = ListOutbox(), SpyHistory(), HandClock()
    recorder = HistoryRecorder(outbox, history, clock=clock)
    for tick in range(31):  # a little at a time, for three seconds
        clock.seconds = tick / 10
        outbox.add(f"job-{tick}")
        await recorder.run_once()
    assert history.syncs == 4


async def test_what_was_recorded_last_is_synced_and_pruned_when_idle() -> None:
    outbox, history, clock = filled(1), SpyHistory(), HandClock()
    recorder = HistoryRecorder(outbox, history, clock=clock)
    await recorder.run_once()
    outbox.add("job-2")
    await recorder.run_once()
    assert outbox.pruned == [1]
    clock.seconds = 1.0
    assert await recorder.run_once() == 0
    assert outbox.pruned == [1, 2]
    clock.seconds = 5.0
    assert await recorder.run_once() == 0
    assert history.syncs == 2  # nothing new, nothing to sync


async def test_the_outbox_is_pruned_only_behind_what_is_synced() -> None:
    outbox, history, clock = filled(10), SpyHistory(), HandClock()
    history.sync_lag = 4
    recorder = HistoryRecorder(outbox, history, clock=clock)
    await recorder.drain()
    assert outbox.pruned == [6]
    assert [entry.number for entry in outbox.entries] == [7, 8, 9, 10]
    history.sync_lag = 0  # what held the sync back is gone: nothing new is needed to notice it
    clock.seconds = 1.0
    await recorder.run_once()
    assert outbox.entries == []


async def test_a_crash_between_record_and_prune_records_once() -> None:
    outbox, history = filled(3), SpyHistory()
    outbox.prune_failures = 1
    with pytest.raises(StorageError):
        await HistoryRecorder(outbox, history).run_once()
    assert len(outbox.entries) == 3
    await HistoryRecorder(outbox, history).drain()
    assert history.batches == [3]
    assert outbox.entries == []
    assert await holds(history, 3)


class CutHistory(MemoryHistory):
    """Has a volatile and a durable image, as the simulated store has; a power cut drops the volatile one."""

    def __init__(self) -> None:
        super().__init__()
        self._durable = copy.deepcopy(self.__dict__)

    async def sync(self) -> int:
        self._durable = copy.deepcopy({k: v for k, v in self.__dict__.items() if k != "_durable"})
        return await super().sync()

    def cut(self) -> None:
        self.__dict__.update(copy.deepcopy(self._durable))


@given(st.lists(st.sampled_from(["add", "run_once", "later", "crash", "power cut"]), max_size=40))
async def test_no_power_cut_loses_what_the_store_has_flushed(steps: list[str]) -> None:
    outbox, history, clock = ListOutbox(), CutHistory(), HandClock()
    recorder = HistoryRecorder(outbox, history, clock=clock, limit=2)
    for step in [*steps, "power cut"]:
        if step == "add":
            outbox.add(f"job-{outbox.last + 1}")
        elif step == "run_once":
            await recorder.run_once()
        elif step == "later":
            clock.seconds += 1.0
        else:
            if step == "power cut":
                history.cut()
            recorder = HistoryRecorder(outbox, history, clock=clock, limit=2)
    await recorder.drain()
    assert await holds(history, outbox.last)
    assert outbox.entries == []


# With a loop


async def test_stop_before_start_and_stop_twice_are_fine() -> None:
    recorder = HistoryRecorder(ListOutbox(), MemoryHistory())
    await recorder.stop()
    await recorder.start()
    await recorder.start()
    await recorder.stop()
    await recorder.stop()


async def test_two_stops_at_once_both_return_when_it_has_stopped() -> None:
    outbox = filled(3)
    recorder = HistoryRecorder(outbox, MemoryHistory())
    await recorder.start()
    await asyncio.gather(recorder.stop(), recorder.stop())
    assert outbox.entries == []


async def test_stop_drains_what_is_flushed() -> None:
    outbox, history = ListOutbox(), SpyHistory()
    recorder = HistoryRecorder(outbox, history, limit=2)
    await recorder.start()
    for number in range(1, 8):
        outbox.add(f"job-{number}")
    await recorder.stop()
    assert outbox.entries == []
    assert history.synced == 7
    assert await holds(history, 7)


async def test_a_stopped_recorder_can_be_started_again() -> None:
    outbox, history = filled(1), SpyHistory()
    recorder = HistoryRecorder(outbox, history)
    for number in (2, 3):
        await recorder.start()
        await recorder.stop()
        outbox.add(f"job-{number}")
    await recorder.start()
    await recorder.stop()
    assert await holds(history, 3)


async def test_a_wake_has_new_entries_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "RECHECK_S", 3600.0)

    outbox, history = ListOutbox(), SpyHistory()
    recorder = HistoryRecorder(outbox, history)
    await recorder.start()
    await asyncio.sleep(0.01)
    outbox.add("job-1")
    recorder.wake()
    await until(lambda: history.batches == [1])
    await recorder.stop()


async def test_commits_that_come_together_are_recorded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "POOL_S", 0.05)

    outbox, history = ListOutbox(), SpyHistory()
    recorder = HistoryRecorder(outbox, history)
    await recorder.start()
    await asyncio.sleep(0.06)
    for number in range(1, 11):
        outbox.add(f"job-{number}")
        recorder.wake()
        await asyncio.sleep(0)
    await until(lambda: bool(history.batches))
    assert history.batches == [10]
    await recorder.stop()


async def test_a_lost_hint_only_costs_time() -> None:
    outbox, history = ListOutbox(), SpyHistory()
    recorder = HistoryRecorder(outbox, history)
    await recorder.start()
    await asyncio.sleep(0.005)
    outbox.add("job-1")  # and nobody says so
    await until(lambda: history.batches == [1])
    await recorder.stop()


@pytest.mark.parametrize("after_writing", [False, True], ids=["not written", "written, answer lost"])
def test_a_failing_backend_is_retried_and_loses_nothing(
    after_writing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        outbox, history = filled(5), SpyHistory(failures=4, after_writing=after_writing)
        recorder = HistoryRecorder(outbox, history, limit=2)
        await recorder.start()
        await until(lambda: outbox.entries == [] or history.synced == 5)
        await recorder.stop()
        assert outbox.entries == []
        assert await holds(history, 5)

    with caplog.at_level(logging.ERROR, "regista.history"):
        asyncio.run(body())
    failures = [record for record in caplog.records if record.name == "regista.history"]
    assert [getattr(record, "action", None) for record in failures] == ["history_retry"] * len(failures)
    assert len(failures) >= (3 if after_writing else 4)
    assert all(record.exc_info is not None for record in failures)


def test_waiting_between_failures_doubles_up_to_its_bound(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        recorder = HistoryRecorder(filled(1), history := SpyHistory(failures=5))
        await recorder.start()
        await until(lambda: history.batches == [1])
        await recorder.stop()

    asyncio.run(body())
    waits = [getattr(record, "retry_in_s", None) for record in caplog.records]
    assert waits == [0.001, 0.002, 0.004, 0.004, 0.004]


async def test_stop_with_a_dead_backend_returns_and_the_outbox_keeps_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder_module, "BACKOFF_S", 3600.0)

    outbox, history = filled(3), SpyHistory(failures=1_000_000)
    recorder = HistoryRecorder(outbox, history)
    await recorder.start()
    await asyncio.sleep(0.01)
    await recorder.stop()
    assert len(outbox.entries) == 3
    history.failures = 0
    await recorder.start()
    await recorder.stop()
    assert await holds(history, 3)


def test_of_two_on_a_shared_store_one_records_and_the_other_takes_over() -> None:
    async def body() -> None:
        outbox, history = ListOutbox(), SpyHistory()
        leader = 0

        def lead_of(number: int) -> Callable[[], Awaitable[bool]]:
            async def lead() -> bool:
                return leader == number

            return lead

        recorders = [HistoryRecorder(outbox, history, lead=lead_of(number)) for number in range(2)]
        for recorder in recorders:
            await recorder.start()
        for number in range(1, 7):
            leader = number // 4
            outbox.add(f"job-{number}")
            for recorder in recorders:
                recorder.wake()
            await until(lambda: sum(history.batches) == outbox.last)
        assert history.batches == [1] * 6  # nothing twice
        for recorder in recorders:
            await recorder.stop()
        assert outbox.entries == []
        assert await holds(history, 6)

    asyncio.run(body())


def test_a_recorder_that_does_not_lead_any_more_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "SYNC_INTERVAL_S", 0.0)

    async def body() -> None:
        outbox, history = filled(1), SpyHistory()
        turns = iter([True])
        asked = 0

        async def lead() -> bool:
            nonlocal asked
            asked += 1
            return next(turns, False)

        history.sync_lag = 1  # so that something stays to be synced
        recorder = HistoryRecorder(outbox, history, lead=lead)
        await recorder.start()
        await until(lambda: history.batches == [1])
        asked = 0
        await asyncio.sleep(0.1)
        assert asked < 20
        history.sync_lag = 0
        await recorder.stop()  # whoever leads: what is there is recorded, synced and pruned
        assert outbox.entries == []

    asyncio.run(body())


# Reading


class Interrupted(ListOutbox):
    """Has something happen right after each look at the tail."""

    def __init__(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        super().__init__()
        self.meanwhile = meanwhile

    async def tail(self, job_id: str, after_seq: int) -> list[Event]:
        found = await super().tail(job_id, after_seq)
        if self.meanwhile is not None:
            await self.meanwhile()
        return found


async def test_stories_of_many_jobs_are_history_and_the_unrecorded_tails() -> None:
    outbox, history = ListOutbox(), MemoryHistory()
    outbox.add("recorded", events=3)
    outbox.add("both", events=2)
    await history.record(outbox.entries)
    outbox.add("both", events=2)
    outbox.add("new", events=1)
    await outbox.prune(2)
    stories = await read_events_of_jobs(outbox, history, ["recorded", "both", "new", "nobody"], 3)
    assert {job_id: seqs(events) for job_id, events in stories.items()} == {
        "recorded": [1, 2, 3],
        "both": [1, 2, 3],
        "new": [1],
        "nobody": [],
    }


async def test_events_are_history_and_the_unrecorded_tail() -> None:
    outbox, history = ListOutbox(), MemoryHistory()
    recorder = HistoryRecorder(outbox, history)
    outbox.add("job", events=3)
    outbox.add("other", events=1)
    assert seqs(await read_events(outbox, history, "job")) == [1, 2, 3]
    await history.record(outbox.entries)  # recorded, not pruned yet
    outbox.add("job", events=2)
    assert seqs(await read_events(outbox, history, "job")) == [1, 2, 3, 4, 5]
    assert seqs(await read_events(outbox, history, "job", after_seq=1, limit=3)) == [2, 3, 4]
    assert seqs(await read_events(outbox, history, "job", after_seq=3)) == [4, 5]
    assert seqs(await read_events(outbox, history, "job", limit=2)) == [1, 2]
    await recorder.drain()
    assert seqs(await read_events(outbox, history, "job")) == [1, 2, 3, 4, 5]
    assert await read_events(outbox, history, "nobody") == []


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
async def test_events_have_no_gap_and_no_duplicate_while_the_recorder_runs(limit: int) -> None:
    outbox, history = Interrupted(), MemoryHistory()
    recorder = HistoryRecorder(outbox, history, limit=1)
    for _ in range(4):
        outbox.add("job", events=2)
    await recorder.run_once()
    outbox.meanwhile = recorder.drain  # records and prunes all of it between the two looks
    assert seqs(await read_events(outbox, history, "job", limit=limit)) == list(range(1, 9))[:limit]


# A story that is told anew


class ForgetfulOutbox(ListOutbox):
    """An outbox whose store may lose its last moments: entries, and the numbers that were counted."""

    async def outbox(self, after: int, limit: int) -> OutboxPage:
        return (await super().outbox(after, limit))._replace(newest=self.last)

    def lose(self, entries: int) -> None:
        self.last -= entries
        self.entries = [entry for entry in self.entries if entry.number <= self.last]

    def tell(self, job_id: str, first_seq: int, events: int = 1) -> None:
        self.last += 1
        self.entries.append(make_entry(self.last, job_id, first_seq, events))


def _messages(events: list[Event]) -> list[str | None]:
    return [event.message for event in events]


async def test_what_a_store_tells_after_a_loss_is_recorded_though_its_numbers_are_old() -> None:
    outbox, history = ForgetfulOutbox(), SpyHistory()
    recorder = HistoryRecorder(outbox, history)
    for _ in range(5):
        outbox.add("job")
    await recorder.run_once()
    outbox.lose(3)
    outbox.tell("job", 3, events=2)  # the story goes on behind its second event, with number 3 again
    outbox.add("other")
    assert await recorder.run_once() == 2
    assert seqs(await history.events("job")) == [1, 2, 3, 4]
    assert seqs(await history.events("other")) == [1]
    outbox.tell("job", 5)
    assert await recorder.run_once() == 1
    assert seqs(await history.events("job")) == [1, 2, 3, 4, 5]
    assert await recorder.run_once() == 0


async def test_what_is_told_after_a_loss_is_kept_until_history_takes_it() -> None:
    outbox, history = ForgetfulOutbox(), SpyHistory()
    recorder = HistoryRecorder(outbox, history)
    for _ in range(4):
        outbox.add("job")
    await recorder.run_once()
    outbox.lose(3)
    outbox.tell("job", 2)
    history.failures = 2
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await recorder.run_once()
    await recorder.drain()
    assert seqs(await history.events("job")) == [1, 2]
    assert outbox.entries == []


async def test_a_story_that_history_does_not_know_yet_is_read_without_the_old_one() -> None:
    outbox, history = ListOutbox(), MemoryHistory()
    await history.record([make_entry(1, "job", events=5)])
    outbox.last = 7
    outbox.add("job", events=2)
    anew = [replace(event, message="anew") for event in outbox.entries[0].events]
    outbox.entries[0] = replace(outbox.entries[0], events=tuple(anew))
    assert _messages(await read_events(outbox, history, "job")) == ["anew", "anew"]
    assert _messages((await read_events_of_jobs(outbox, history, ["job"]))["job"]) == ["anew", "anew"]
    assert _messages(await read_events(outbox, history, "job", after_seq=1)) == ["anew"]
