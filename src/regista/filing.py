"""Filing: everything that an orchestrator does with files and large values, built from its settings."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from .clock import Clock
from .config import Config
from .engines.native.engine import NativeEngine
from .errors import PayloadsDisabled
from .model import Job, Task, TaskFailure, TaskResult
from .payloads.base import Broken, Method, Payloads, claimed
from .payloads.links import signed_path
from .payloads.records import Glance, KeptRecords, keep_records
from .payloads.service import FileService, build_files
from .payloads.task_files import TaskFiles
from .storage.base import Hint, HintKind, StorageBackend
from .upkeep.files import FileCleaner, FileSweeper
from .upkeep.loop import Chore, UpkeepLoop

log = logging.getLogger("regista.payloads")

#: Seconds that a stop takes at most to clean up after jobs that have just ended.
_LAST_ROUND_S = 5.0


class Filing:
    """The payload store of an orchestrator, or the lack of one.

    Without one nothing here costs anything: `kept` is the store itself, and there are no chores.
    """

    def __init__(
        self,
        config: Config,
        storage: StorageBackend,
        clock: Clock,
        watched: Callable[[Payloads], Payloads] = lambda store: store,
    ) -> None:
        """`watched` may put somebody who counts before the payload store."""
        self._config = config
        self._storage = storage
        self._clock = clock
        self.service: FileService | None = build_files(config)
        if self.service is not None:
            self.service.store = watched(self.service.store)
            # Twice: a transfer may look at its file while all others stand still. `Transfers` counts them.
            self.service.outside = self.service.store.apart(2 * config.s3_max_concurrency)
        #: Signs links to files, where the payload store cannot. The same for all who share the store.
        self.secret = b""
        #: Who owns the payload store; empty until it has started.
        self._owner = ""
        self.chores: list[Chore] = []
        self._kept: KeptRecords | None = None
        if self.service is not None:
            self._build(self.service)

    def _build(self, service: FileService) -> None:
        removes = self._config.s3_auto_cleanup
        self._cleaner = FileCleaner(service.store, service, self._storage, removes)
        self.chores = [self._cleaner, FileSweeper(service.store, self._storage, removes)]
        service.on_open = self._cleaner.used
        if not service.store.signs:
            service.sign = self._sign

    def keep(self, storage: StorageBackend) -> StorageBackend:
        """The store for deciders: large values are kept out of it, and seen as if they were in it."""
        store = None if self.service is None else self.service.store
        kept = keep_records(storage, store, self._config.offload_bytes, self._clock)
        self._kept = kept if isinstance(kept, KeptRecords) else None
        return kept

    def glance(self, storage: StorageBackend) -> StorageBackend:
        """The store for whoever looks at many jobs: nothing large is fetched for him."""
        return storage if self.service is None else cast(StorageBackend, Glance(storage))

    @property
    def hint_handlers(self) -> Mapping[HintKind, Sequence[Callable[[Hint], None]]]:
        """Removes the files of jobs that have ended."""
        if self.service is None:
            return {}
        return {HintKind.CHANGED: [lambda hint: self._cleaner.settled(hint.id)]}

    def join(self, engine: NativeEngine, upkeep: UpkeepLoop) -> None:
        """Fail tasks whose params are broken."""
        if self.service is None:
            return
        self._cleaner.on_work = lambda: upkeep.nudge(self._cleaner.name)
        if self._kept is not None:
            self._kept.on_broken = lambda task, why: engine.run_soon(
                _fail(engine, task, why), "broken-params"
            )

    async def start(self) -> None:
        """Make sure that the payload store is there. A configured one that is not stops the start."""
        if self.service is not None:
            self.secret = await self._storage.secret("files")
            await self.service.start()
            cluster = sha256(await self._storage.secret("cluster")).hexdigest()[:16]
            self._owner = await claimed(self.service.store, cluster)

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
        return job if self._kept is None else await self._kept.whole(job)

    async def seen(self, job: Job) -> Job:
        """A job as a stranger may see it, where it comes straight from whoever wrote it."""
        return job if self._kept is None else await self._kept.seen(job)

    async def value(self, job_id: str, sha256: str) -> Any:
        """A large value of a job by its checksum; FileMissing."""
        if self._kept is None:
            raise PayloadsDisabled
        return await self._kept.value(job_id, sha256)

    def _sign(self, job_id: str, name: str, method: Method, expires_s: float) -> str:
        expires = int(self._clock.now().timestamp() + expires_s)
        return self._config.public_url.rstrip("/") + signed_path(self.secret, job_id, name, method, expires)


async def _fail(engine: NativeEngine, task: Task, why: Broken) -> None:
    """What a worker would say who was given this task: it cannot be done, now or ever."""
    code = "PERMANENT_ERROR" if why.permanent else "TRANSIENT_ERROR"
    await engine.deliver(
        TaskResult(
            task_id=task.attempt_id,
            job_id=task.job_id,
            worker_id=task.worker_id or "",
            error=TaskFailure(code, f"{why.code}: {why.message}"),
        )
    )
