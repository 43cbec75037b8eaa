"""Files of ended jobs go; those of living and quarantined ones, and of other clusters, stay."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from regista import Job, JobStatus, MemoryStorage
from regista.clock import SystemClock
from regista.errors import PayloadUnavailable
from regista.model import Change
from regista.payloads.base import OWNER
from regista.payloads.cleanup import FileCleaner, FileSweeper
from regista.payloads.files_service import TaskFilesService
from regista.payloads.memory import MemoryPayloads
from regista.payloads.scratch import ScratchDirectory

#: The store stamps files with the time of day: "later" is seen from there.
NOW = datetime.now(UTC)
LATER = NOW + timedelta(hours=2)


async def stored(storage: MemoryStorage, job_id: str, status: JobStatus) -> None:
    """A job of that status in the store."""
    job = Job(
        id=job_id,
        blueprint="b",
        version="v",
        status=status,
        state="s",
        created_at=NOW,
        updated_at=NOW,
        revision=1,
    )
    (outcome,) = await storage.commit([Change(job_id=job_id, token=job_id, job=job)], "i")
    assert outcome.ok


async def house(*statuses: JobStatus) -> tuple[MemoryStorage, MemoryPayloads]:
    """A store with jobs `j0`, `j1` … of these statuses, each with a file, and a value of its record."""
    storage, store = MemoryStorage(SystemClock()), MemoryPayloads()
    await storage.start()
    for number, status in enumerate(statuses):
        await stored(storage, f"j{number}", status)
        await store.put(f"jobs/j{number}/a/b.txt", b"")
        await store.put(f"records/j{number}/0", b"")
    return storage, store


async def left(store: MemoryPayloads, prefix: str = "jobs") -> list[str]:
    return await store.folders(prefix)


async def test_the_sweeper_removes_the_files_of_ended_jobs_alone() -> None:
    ended = [JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED]
    alive = [JobStatus.RUNNING, JobStatus.WAITING_FOR_HUMAN, JobStatus.CANCELLING, JobStatus.QUARANTINED]
    storage, store = await house(*ended, *alive)

    report = await FileSweeper(store, storage, removes=True).run_once(LATER)

    assert report.done == 3
    assert await left(store) == ["j3", "j4", "j5", "j6"]
    # A record has its values for as long as it lives.
    assert len(await left(store, "records")) == 7
    assert (await FileSweeper(store, storage, removes=True).run_once(LATER)).done == 0


async def test_what_nobody_knows_goes_once_it_is_old_enough() -> None:
    storage, store = await house(JobStatus.RUNNING)
    for path in ("jobs/gone/a", "records/gone/0"):
        await store.put(path, b"")
    sweeper = FileSweeper(store, storage, removes=True)

    # It may be somebody's in a moment: a value is put away before the job is written that has it.
    assert (await sweeper.run_once(NOW + timedelta(minutes=50))).done == 0
    assert (await sweeper.run_once(NOW + timedelta(hours=3))).done == 2

    assert (await left(store), await left(store, "records")) == (["j0"], ["j0"])


async def test_a_place_of_another_cluster_is_not_swept(caplog: pytest.LogCaptureFixture) -> None:
    storage, store = await house(JobStatus.FINISHED)
    await store.put("jobs/gone/a", b"")
    await FileSweeper(store, storage, removes=True)._owns()
    other = MemoryStorage(SystemClock())
    await other.start()

    assert (await FileSweeper(store, other, removes=True).run_once(LATER)).done == 0

    assert await left(store) == ["gone", "j0"]
    assert "belongs to another cluster" in caplog.text
    assert await store.find(OWNER) is not None


async def test_without_auto_cleanup_files_stay_and_values_without_a_record_go() -> None:
    storage, store = await house(JobStatus.FINISHED)
    await store.put("records/gone/0", b"")

    await FileSweeper(store, storage, removes=False).run_once(LATER)

    assert (await left(store), await left(store, "records")) == (["j0"], ["j0"])


async def test_two_sweepers_at_once_do_no_harm() -> None:
    storage, store = await house(*[JobStatus.FINISHED] * 20, JobStatus.RUNNING)
    sweepers = [FileSweeper(store, storage, removes=True) for _ in range(2)]

    await asyncio.gather(*(each.run_once(LATER) for each in sweepers))

    assert await left(store) == ["j20"]


class Stubborn(MemoryPayloads):
    """A store in which some folders cannot be removed."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck: set[str] = set()

    async def clear(self, prefix: str) -> int:
        if prefix in self.stuck:
            raise PayloadUnavailable(f"{prefix}: permission denied")
        return await super().clear(prefix)


async def test_a_folder_that_cannot_be_removed_keeps_no_other_one() -> None:
    storage, _ = await house()
    store = Stubborn()
    for number in range(60):
        await stored(storage, f"j{number:02}", JobStatus.FINISHED)
        await store.put(f"jobs/j{number:02}/a", b"")
    store.stuck = {f"jobs/j{number:02}" for number in range(50)}
    sweeper = FileSweeper(store, storage, removes=True)

    done = [(await sweeper.run_once(LATER)).done for _ in range(4)]

    assert sum(done) == 10
    assert await left(store) == [f"j{number:02}" for number in range(50)]
    store.stuck.clear()
    assert (await sweeper.run_once(LATER)).done == 50


async def test_the_cleaner_sees_to_jobs_whose_files_were_used_here(tmp_path: Path) -> None:
    storage, store = await house(JobStatus.FINISHED, JobStatus.QUARANTINED, JobStatus.RUNNING)
    service = TaskFilesService(store, ScratchDirectory(str(tmp_path)))
    cleaner = FileCleaner(store, service, storage, removes=True)
    service.on_open = cleaner.used
    folders = [service.open(f"j{number}").path for number in range(3)]
    nudges: list[str] = []
    cleaner.on_work = lambda: nudges.append("now")

    for number in range(3):
        cleaner.settled(f"j{number}")
    cleaner.settled("never-used")
    report = await cleaner.run_once(NOW)

    assert (report.done, len(nudges)) == (1, 3)
    assert [each.exists() for each in folders] == [False, True, True]
    assert await left(store) == ["j1", "j2"]
    # What it was not told of it finds by itself.
    cleaner.used("j0")
    await store.put("jobs/j0/late", b"")
    assert (await cleaner.run_once(NOW)).done == 1
    assert await left(store) == ["j1", "j2"]
    await service.stop()


async def test_the_cleaner_leaves_a_job_alone_that_is_not_written_yet(tmp_path: Path) -> None:
    # Given a start handler at work: it has written a file, and its job is not in the store yet.
    storage, store = await house()
    service = TaskFilesService(store, ScratchDirectory(str(tmp_path)))
    cleaner = FileCleaner(store, service, storage, removes=True)
    service.on_open = cleaner.used
    files = service.open("young")
    folder = files.path
    await files.write_text("in.txt", "hello")

    # When other jobs end, and the cleaner looks over all that it knows of.
    assert (await cleaner.run_once(NOW)).done == 0

    # Then everything is there, and goes when the job was written and has ended.
    assert (await files.read_text("in.txt"), folder.exists()) == ("hello", True)
    await stored(storage, "young", JobStatus.FINISHED)
    assert (await cleaner.run_once(NOW)).done == 1
    assert (await left(store), folder.exists()) == ([], False)
    await service.stop()


async def test_the_cleaner_forgets_a_job_that_was_never_written_and_leaves_its_files_to_the_sweeper(
    tmp_path: Path,
) -> None:
    storage, store = await house()
    service = TaskFilesService(store, ScratchDirectory(str(tmp_path)))
    cleaner = FileCleaner(store, service, storage, removes=True)
    service.on_open = cleaner.used
    files = service.open("never")
    folder = files.path
    await files.write_text("in.txt", "hello")

    await cleaner.run_once(NOW)
    await cleaner.run_once(NOW + timedelta(minutes=50))
    assert folder.exists()
    await cleaner.run_once(NOW + timedelta(minutes=61))

    assert (folder.exists(), cleaner._used, await left(store)) == (False, {}, ["never"])
    await service.stop()
