"""Promises about events on their way to history."""

from ....storage.base import StorageBackend
from .kit import (
    ALL,
    FINISHED,
    ManualClock,
    closed,
    commit,
    create,
    dispatch,
    event,
    fenced,
    job_of,
    make_job,
    make_task,
    next_of,
    on_a_clock,
    only,
    told,
    write,
)


class OutboxPromises:
    """Part of the suite that `StorageConformance` is."""

    @on_a_clock
    async def test_events_are_numbered_from_one_without_a_gap(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job("a"), make_job("b"), events=(event("1"), event("2")))
        await commit(storage, write(next_of(await job_of(storage, "a")), events=()))
        await commit(storage, write(next_of(await job_of(storage, "b")), events=(event("3"),)))
        await commit(storage, write(next_of(await job_of(storage, "a"), **FINISHED), events=(event("3"),)))
        for job_id in "ab":
            assert await told(storage, job_id) == [(1, "1"), (2, "2"), (3, "3")]

    @on_a_clock
    async def test_the_outbox_has_one_entry_a_change_in_order(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        jobs = [make_job("a", client="acme", search_attributes={"Tag": "x"}), make_job("b")]
        await create(storage, *jobs, events=(event("1"), event("2")))
        await dispatch(storage, make_task("c"))
        told_alone = only("c", fenced(closed(make_task("c"))), events=(event("3"),))
        await commit(storage, told_alone)
        entries = (await storage.outbox(0, ALL)).entries
        assert [(entry.job_id, entry.first_seq, len(entry.events)) for entry in entries] == [
            ("a", 1, 2),
            ("b", 1, 2),
            ("c", 1, 1),
        ]
        assert [entry.number for entry in entries] == [entries[0].number + n for n in range(3)]
        first, _, last = entries
        assert first.summary is not None
        assert (first.summary.job_id, first.summary.client, first.summary.status) == ("a", "acme", "pending")
        assert first.summary.search_attributes == {"Tag": "x"}
        assert last.summary is None

    @on_a_clock
    async def test_the_outbox_can_be_paged_and_read_again(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        for n in range(7):
            await create(storage, make_job(f"job-{n}"), events=(event(),))
        entries = (await storage.outbox(0, ALL)).entries
        for after in range(7):
            for limit in (1, 3, 100):
                page = (await storage.outbox(entries[after].number, limit)).entries
                assert page == entries[after + 1 : after + 1 + limit]
        assert (await storage.outbox(0, ALL)).entries == entries
        assert (await storage.outbox(entries[-1].number + 5, ALL)).entries == []

    @on_a_clock
    async def test_pruned_entries_are_forgotten_and_numbers_go_on(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, *(make_job(f"job-{n}") for n in range(4)), events=(event("old"),))
        numbers = [entry.number for entry in (await storage.outbox(0, ALL)).entries]
        await storage.prune(numbers[1])
        assert [entry.job_id for entry in (await storage.outbox(0, ALL)).entries] == ["job-2", "job-3"]
        await storage.prune(numbers[0])
        await storage.prune(numbers[3])
        await storage.prune(numbers[3])
        assert (await storage.outbox(0, ALL)).entries == []
        await commit(storage, write(next_of(await job_of(storage, "job-0")), events=(event("new"),)))
        (entry,) = (await storage.outbox(0, ALL)).entries
        assert (entry.number, entry.first_seq) == (numbers[3] + 1, 2)
        assert (await storage.outbox(numbers[3], ALL)).entries == [entry]

    @on_a_clock
    async def test_the_tail_of_a_job_is_what_was_not_pruned(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        job = make_job()
        for n in range(4):
            await commit(storage, write(job, events=(event(f"{n}a"), event(f"{n}b"))))
            job = next_of(job)
        await create(storage, make_job("other"), events=(event("other"),))
        tail = await storage.tail("job-1", 3)
        assert [(event.job_id, event.seq, event.message) for event in tail] == [
            ("job-1", 4, "1b"),
            *(("job-1", seq, text) for seq, text in enumerate(["2a", "2b", "3a", "3b"], 5)),
        ]
        assert await storage.tail("job-1", 8) == []
        assert await storage.tail("unknown", 0) == []
        await storage.prune(((await storage.outbox(0, ALL)).entries)[1].number)
        assert [event.seq for event in await storage.tail("job-1", 0)] == [5, 6, 7, 8]
