"""Filing: everything that an orchestrator does with files and large values, built from its settings."""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from .clock import Clock
from .config import Config
from .engines.base import TaskEngine
from .errors import FileMissing, PayloadsDisabled
from .maintenance.chore import Chore
from .maintenance.loop import MaintenanceLoop
from .model import Job, Task, TaskFailure, TaskResult
from .payloads.base import FetchFailure, Method, PayloadStore, claim_owner
from .payloads.cleanup import FileCleaner, FileSweeper
from .payloads.files_service import TaskFilesService, build_files
from .payloads.links import signed_path
from .payloads.offload import Offloader
from .payloads.records import RecordOffloader
from .payloads.task_files import TaskFiles
from .storage.base import Hint, HintKind, StorageBackend, shared_secret

log = logging.getLogger("regista.payloads")

#: Seconds that a stop takes at most to clean up after jobs that have just ended.
_LAST_ROUND_S = 5.0


class Filing:
    """The payload store of an orchestrator, or the lack of one.

    Without one nothing here costs anything: `records` is None, and there are no chores.
    """

    def __init__(
        self,
        config: Config,
        storage: StorageBackend,
        clock: Clock,
        watched: Callable[[PayloadStore], PayloadStore] = lambda store: store,
    ) -> None:
        """`watched` may put somebody who counts before the payload store."""
        self._config = config
        self._storage = storage
        self._clock = clock
        self.service: TaskFilesService | None = build_files(config)
        if self.service is not None:
            self.service.store = watched(self.service.store)
            # Twice: a transfer may look at its file while all others stand still. `Transfers` counts them.
            self.service.outside = self.service.store.with_own_limits(2 * config.s3_max_concurrency)
        #: Signs links to files, where the payload store cannot. The same for all who share the store.
        self.secret = b""
        #: Who owns the payload store; empty until it has started.
        self._owner = ""
        self.chores: list[Chore] = []
        #: Keeps large values of records in the payload store; None where there is none.
        self.records: RecordOffloader | None = None
        if self.service is not None:
            # With a limit of 0 no new values leave the records, and those that have left can still be read.
            limit = config.offload_bytes or sys.maxsize
            self.records = RecordOffloader(Offloader(self.service.store, limit, clock))
            self._build(self.service)

    def _build(self, service: TaskFilesService) -> None:
        removes = self._config.s3_auto_cleanup
        self._cleaner = FileCleaner(service.store, service, self._storage, removes)
        self.chores = [self._cleaner, FileSweeper(service.store, self._storage, removes)]
        service.on_open = self._cleaner.used
        if not service.store.signs:
            service.sign = self._sign

    def at_a_glance(self, job: Job) -> Job:
        """The job with large values by size and checksum only; nothing is read."""
        return job if self.records is None else self.records.at_a_glance(job)

    @property
    def hint_handlers(self) -> Mapping[HintKind, Sequence[Callable[[Hint], None]]]:
        """Removes the files of jobs that have ended."""
        if self.service is None:
            return {}
        return {HintKind.CHANGED: [lambda hint: self._cleaner.settled(hint.id)]}

    def join(self, maintenance: MaintenanceLoop) -> None:
        """Run the cleaner when there is work for it."""
        if self.service is None:
            return
        self._cleaner.on_work = lambda: maintenance.run_soon(self._cleaner.name)

    async def start(self) -> None:
        """Make sure that the payload store is there. A configured one that is not stops the start."""
        if self.service is not None:
            self.secret = await shared_secret(self._storage, "files")
            await self.service.start()
            cluster = sha256(await shared_secret(self._storage, "cluster")).hexdigest()[:16]
            self._owner = await claim_owner(self.service.store, cluster)

    async def stop(self) -> None:
        """Remove the files of jobs that have just ended, and the directories of this process.

        Twice is fine, and so is before `start`. What cannot be removed now is found by the next look over all folders.
        """
        if self.service is None:
            return
        try:
            if self._owner:
                async with asyncio.timeout(_LAST_ROUND_S):
                    await self._cleaner.run_once(self._clock.now())
        except Exception as error:  # noqa: BLE001  # a store that is away must not keep us from stopping
            log.info("files of ended jobs are left for later: %s", str(error) or type(error).__name__)
        self._owner = ""
        await self.service.stop()

    @property
    def place(self) -> dict[str, str] | None:
        """Which payload store this is, for workers who must use the same; None where there is none."""
        if self.service is None or not self._owner:
            return None
        return {"uri": self.service.store.uri("").rstrip("/"), "owner": self._owner}

    @property
    def files(self) -> Callable[[str], TaskFiles] | None:
        """The files of a job, for its handlers; None where there are none."""
        return None if self.service is None else self.service.open

    def open(self, job_id: str, *, outside: bool = False) -> TaskFiles:
        """The files of a job, with turns of their own for links from `outside`; PayloadsDisabled."""
        if self.service is None:
            raise PayloadsDisabled
        return self.service.open(job_id, outside=outside)

    async def whole(self, job: Job) -> Job:
        """A job with every value whole, whatever its size."""
        stored = await self._stored(job.id)
        return job if stored is None or self.records is None else await self.records.complete(stored)

    async def seen(self, job: Job) -> Job:
        """A job as clients see it, where it comes straight from the write."""
        if self.records is None or not self.records.is_large(job):
            return job
        stored = await self._stored(job.id)
        return job if stored is None else await self.records.shown(stored)

    async def value(self, job_id: str, sha256: str) -> Any:
        """A large value of a job by its checksum; FileMissing."""
        if self.records is None:
            raise PayloadsDisabled
        stored = await self._stored(job_id)
        if stored is None:
            raise FileMissing(sha256)
        return await self.records.value(stored, sha256)

    async def _stored(self, job_id: str) -> Job | None:
        if self.records is None:
            return None
        (stored,) = await self._storage.get([job_id])
        return stored

    def _sign(self, job_id: str, name: str, method: Method, expires_s: float) -> str:
        expires = int(self._clock.now().timestamp() + expires_s)
        return self._config.public_url.rstrip("/") + signed_path(self.secret, job_id, name, method, expires)


async def fail_broken_task(engine: TaskEngine, task: Task, why: FetchFailure) -> None:
    """Fails a task whose params cannot be read, as a worker would that was given it."""
    code = "PERMANENT_ERROR" if why.permanent else "TRANSIENT_ERROR"
    await engine.deliver(
        TaskResult(
            task_id=task.attempt_id,
            job_id=task.job_id,
            worker_id=task.worker_id or "",
            error=TaskFailure(code, f"{why.code}: {why.message}"),
        )
    )
