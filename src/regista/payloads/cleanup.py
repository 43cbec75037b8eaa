"""FileCleaner and FileSweeper: the files of a job go when it ends, and what was forgotten goes later.

| what lies there                                   | goes                                                        |
|---------------------------------------------------|-------------------------------------------------------------|
| files of a job whose files were used here         | a moment after its end (FileCleaner)                        |
| files of any ended job: other processes, a crash  | with the next look over all folders (FileSweeper)           |
| files of a job that nobody knows                  | the same, once they are older than the grace                |
| values of a record that nobody has any more       | the same, every hour                                        |
| directories on this machine                       | with the files of their job; those of killed processes at the next start |

A quarantined job has not ended: it keeps everything.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from ..errors import PayloadError
from ..maintenance.chore import ChoreResult
from ..model import Job
from ..storage.base import StorageBackend, shared_secret
from .base import JOBS, RECORDS, PayloadStore, claim_owner, job_prefix
from .task_files import TaskFilesProvider

log = logging.getLogger("regista.maintenance")

#: Jobs that are looked up at once.
_AT_ONCE = 500
#: How often the values of records are looked over, and how many jobs' at a time.
_RECORDS_EVERY = timedelta(hours=1)
_RECORDS_AT_ONCE = 2000
#: Folders that cannot be removed before a run gives up: the store is probably away.
_MAX_FAILURES = 20


class FileCleaner:
    """Removes what the jobs left whose files were used through this process, soon after they end."""

    name = "file_cleaner"
    needs_leader = False

    def __init__(
        self,
        store: PayloadStore,
        room: TaskFilesProvider,
        storage: StorageBackend,
        removes: bool,
        interval_s: float = 10.0,
        grace_s: float = 3600.0,
    ) -> None:
        """`removes`: the files in the store go too (S3_AUTO_CLEANUP), and not only the local directories.

        `grace_s` is how long a job may be unknown: its first handler may be at work, before anything is written.
        """
        self.interval_s = interval_s
        self._store = store
        self._room = room
        self._storage = storage
        self._removes = removes
        self._grace = timedelta(seconds=grace_s)
        #: The jobs, and since when nobody knows them; None for those that were known, or not looked at yet.
        self._used: dict[str, datetime | None] = {}
        self._ended: set[str] = set()
        #: Called when there is something to do now.
        self.on_work: Callable[[], None] = lambda: None

    def used(self, job_id: str) -> None:
        """The files of this job were asked for."""
        self._used[job_id] = None

    def settled(self, job_id: str) -> None:
        """A job has ended, or was quarantined. Called for every job; costs nothing for one without files."""
        if job_id in self._used:
            self._ended.add(job_id)
            self.on_work()

    async def run_once(self, now: datetime) -> ChoreResult:
        """Clean up after those that are said to have ended, and look at some of the others: hints get lost."""
        ended, self._ended = self._ended, set()
        looked_at = [*ended, *[job_id for job_id in self._used if job_id not in ended]][:_AT_ONCE]
        done = 0
        for job_id, job in zip(looked_at, await _jobs(self._storage, looked_at), strict=True):
            # To the end of the line, so that all have their turn.
            since = self._used.pop(job_id, None)
            if job is None:
                await self._wait_for(job_id, since or now, now)
            elif job.status.terminal:
                await self._clean(job_id)
                done += 1
            else:
                self._used[job_id] = None
        return ChoreResult(done=done)

    async def _wait_for(self, job_id: str, since: datetime, now: datetime) -> None:
        """Nobody knows the job, yet or any more. Its files are the sweeper's business; here we only forget, late."""
        if now - since < self._grace:
            self._used[job_id] = since
        else:
            await asyncio.to_thread(self._room.remove_local, job_id)

    async def _clean(self, job_id: str) -> None:
        try:
            await asyncio.to_thread(self._room.remove_local, job_id)
            if self._removes:
                await self._store.clear(job_prefix(job_id))
        except BaseException:
            self._used[job_id] = None
            raise


class FileSweeper:
    """Looks over all folders for what ended jobs and lost processes left behind. One instance is enough."""

    name = "file_sweeper"
    needs_leader = True

    def __init__(
        self,
        store: PayloadStore,
        storage: StorageBackend,
        removes: bool,
        interval_s: float = 60.0,
        grace_s: float = 3600.0,
    ) -> None:
        """`grace_s` is how old something must be that belongs to nobody: it may be somebody's in a moment."""
        self.interval_s = interval_s
        self._store = store
        self._storage = storage
        self._removes = removes
        self._grace = timedelta(seconds=grace_s)
        self._ours: bool | None = None
        self._records_at: datetime | None = None
        self._records_after = ""
        #: Folders that could not be removed at the last try; they come last at the next one.
        self._failed: dict[str, None] = {}

    async def run_once(self, now: datetime) -> ChoreResult:
        """Remove what is nobody's any more."""
        if (
            self._ours is not False
        ):  # each time: workers know the place by it, and somebody may have emptied it
            self._ours = await self._owns()
        done = await self._sweep_files(now) if self._removes else 0
        if self._ours and (self._records_at is None or now - self._records_at >= _RECORDS_EVERY):
            done += await self._sweep_records(now)
        if done:
            log.info("removed the files of %d jobs", done, extra={"action": "files_swept", "count": done})
        return ChoreResult(done=done)

    async def _sweep_files(self, now: datetime) -> int:
        done = 0
        folders = self._failed_last(await self._store.folders(JOBS))
        failures = 0
        for start in range(0, len(folders), _AT_ONCE):
            some = folders[start : start + _AT_ONCE]
            for job_id, job in zip(some, await _jobs(self._storage, some), strict=True):
                removed = await self._sweep_folder(f"{JOBS}/{job_id}", job, now)
                done += bool(removed)
                failures += removed is None
                if failures >= _MAX_FAILURES:
                    return done
        return done

    async def _sweep_records(self, now: datetime) -> int:
        """A few thousand jobs at a time; the next run goes on where this one ends."""
        folders = [each for each in await self._store.folders(RECORDS) if each > self._records_after]
        some = folders[:_RECORDS_AT_ONCE]
        done = failures = 0
        for job_id, job in zip(some, await _jobs(self._storage, some), strict=True):
            if job is None and failures < _MAX_FAILURES:
                removed = await self._sweep_folder(f"{RECORDS}/{job_id}", None, now)
                done += bool(removed)
                failures += removed is None
        finished = len(some) == len(folders)
        self._records_after = "" if finished else some[-1]
        self._records_at = now if finished else None
        return done

    def _failed_last(self, folders: list[str]) -> list[str]:
        """The folders, those that failed before at the end: folders behind them must have their turn."""
        known = set(folders)
        failed = [name for name in self._failed if name in known]
        self._failed = dict.fromkeys(failed)
        return [name for name in folders if name not in self._failed] + failed

    async def _sweep_folder(self, prefix: str, job: Job | None, now: datetime) -> bool | None:
        """Remove a folder that is not needed; None when it could not be removed."""
        try:
            if job is None:
                return bool(await self._sweep_unknown(prefix, now))
            return job.status.terminal and bool(await self._store.clear(prefix))
        except PayloadError as error:
            folder = prefix.rpartition("/")[2]
            self._failed.pop(folder, None)
            self._failed[folder] = None
            fields = {"action": "files_not_swept", "job_id": folder}
            log.warning("files of job %s cannot be removed: %s", folder, error, extra=fields)
            return None

    async def _sweep_unknown(self, prefix: str, now: datetime) -> int:
        """Nobody knows the job. It may be about to be created, or be another cluster's."""
        if not self._ours:
            return 0
        files = [each async for each in self._store.files(prefix)]
        if not files or max(each.modified for each in files) > now - self._grace:
            return 0
        await self._store.delete([each.name for each in files])
        return 1

    async def _owns(self) -> bool:
        """Whether the place is ours; one without an owner becomes ours now."""
        cluster = sha256(await shared_secret(self._storage, "cluster")).hexdigest()[:16]
        owner = await claim_owner(self._store, cluster)
        if owner != cluster:
            log.warning(
                "%s belongs to another cluster (%s): files of unknown jobs are left alone; "
                "give each cluster a prefix of its own",
                self._store.uri(""),
                owner,
                extra={"action": "payloads_shared"},
            )
        return owner == cluster


async def _jobs(storage: StorageBackend, job_ids: Sequence[str]) -> Iterable[Job | None]:
    """The records of these jobs, ended ones too."""
    if not job_ids:
        return []
    found, _ = await storage.load(job_ids)
    missing = [job_id for job_id, job in zip(job_ids, found, strict=True) if job is None]
    ended = dict(zip(missing, await storage.get(missing), strict=True))
    return [ended[job_id] if job is None else job for job_id, job in zip(job_ids, found, strict=True)]
