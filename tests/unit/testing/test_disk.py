"""A disk whose power can fail. FENCES 3."""

import asyncio
from typing import Any

import pytest

from regista.storage.journal import JobRow, JournalBatch
from regista.testing.disk import PowerCut, SimulatedDisk
from regista.testing.loop import VirtualLoop


def played(main: Any) -> Any:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def batch(**rows: bytes) -> JournalBatch:
    new = JournalBatch()
    for job_id, body in rows.items():
        new.jobs[job_id] = JobRow(job_id, True, 1, 0, body)
    return new


def test_what_was_written_is_there_after_the_power_is_back() -> None:
    async def main() -> None:
        disk = SimulatedDisk()
        await disk.write(batch(a=b"1"))
        disk.pull_the_plug()
        snapshot = await disk.open()
        assert [row.body for row in snapshot.jobs] == [b"1"]
        assert disk.find_job("a") == b"1"
        assert disk.find_job("b") is None

    played(main())


def test_a_batch_that_is_on_its_way_is_lost_whole() -> None:
    async def main() -> None:
        disk = SimulatedDisk(delay=lambda: 1.0)
        writing = asyncio.ensure_future(disk.write(batch(a=b"1", b=b"2")))
        await asyncio.sleep(0.5)
        disk.pull_the_plug()
        with pytest.raises(PowerCut):
            await writing
        assert (disk.jobs, disk.writes) == ({}, 0)
        # the disk itself is fine
        await disk.write(batch(a=b"3"))
        assert disk.find_job("a") == b"3"

    played(main())


def test_ended_jobs_are_kept_and_not_part_of_the_snapshot() -> None:
    async def main() -> None:
        disk = SimulatedDisk()
        ended = JournalBatch()
        ended.jobs["a"] = JobRow("a", False, 3, 0, b"over")
        await disk.write(ended)
        assert (await disk.open()).jobs == []
        assert disk.find_job("a") == b"over"

    played(main())


def test_rows_that_a_batch_deletes_are_gone_and_twice_is_fine() -> None:
    async def main() -> None:
        disk = SimulatedDisk()
        first, second = JournalBatch(), JournalBatch()
        first.tasks["t"], first.messages["m"] = b"task", b"message"
        second.tasks["t"] = second.messages["m"] = second.tasks["never"] = None
        await disk.write(first)
        await disk.write(second)
        await disk.write(second)
        snapshot = await disk.open()
        assert (snapshot.tasks, snapshot.messages) == ([], [])

    played(main())


def test_pruned_entries_leave_but_the_last_stays_so_that_numbers_go_on() -> None:
    async def main() -> None:
        disk = SimulatedDisk()
        first = JournalBatch()
        first.entries = [(number, b"%d" % number) for number in range(1, 6)]
        await disk.write(first)
        second = JournalBatch()
        second.prune = 5
        await disk.write(second)
        assert (await disk.open()).entries == [b"5"]

    played(main())
