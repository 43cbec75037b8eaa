"""TaskFilesService: a payload store and the directories of this machine, handed out as the files of jobs."""

import asyncio
import logging
from collections.abc import Callable

from ..config.payloads import PayloadSettings
from ..errors import PayloadError, PayloadUnavailable
from .base import Method, PayloadStore, difference, owner_of
from .build import build_payloads
from .scratch import ScratchDirectory
from .task_files import TaskFiles

log = logging.getLogger("regista.payloads")

#: Seconds that reading the owner of the store may take.
_LOOK_S = 5.0


class TaskFilesService:
    """Opens the files of jobs. A worker process has one, and so has an orchestrator."""

    def __init__(self, store: PayloadStore, scratch: ScratchDirectory) -> None:
        self.store = store
        #: The same store for content that comes and goes through links: whoever dribbles takes no turn of a handler's.
        self.outside = store
        self.scratch = scratch
        #: Makes URLs where the store cannot: (job id, name, method, seconds) → URL. The orchestrator sets it.
        self.sign: Callable[[str, str, Method, float], str] | None = None
        #: Called with the id of a job whose files are asked for: somebody shall clean up after it.
        self.on_open: Callable[[str], None] = lambda job_id: None
        #: For each orchestrator that said which store it uses: why ours is another one; empty where it is the same.
        self._differs: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """See that the store is there, and remove what killed processes left on this machine."""
        self._loop = asyncio.get_running_loop()
        await self.store.start()
        await asyncio.to_thread(self.scratch.sweep)

    async def stop(self) -> None:
        """Remove the directories of this process. Twice is fine, and so is before `start`."""
        await asyncio.to_thread(self.scratch.close)

    async def compare(self, home: str, uri: str, owner: str) -> None:
        """An orchestrator says which store it uses. If ours is another one, say so, once for each word of it."""
        try:
            async with asyncio.timeout(_LOOK_S):
                mine = await owner_of(self.store)
        except (PayloadError, TimeoutError) as error:
            log.debug("cannot tell whether this is the orchestrator's payload store: %r", error)
            return
        words = difference(self.store.uri("").rstrip("/"), mine, uri, owner)
        if words and self._differs.get(home) != words:
            log.warning("tasks with files will fail: %s", words, extra={"action": "payloads_differ"})
        self._differs[home] = words

    def open(self, job_id: str, attempt_id: str = "", *, outside: bool = False) -> TaskFiles:
        """The files of a job, for one attempt at a task (or, without one, for its handlers, or for links).

        PayloadUnavailable where no orchestrator of ours uses this store: what lies here is not the job's.
        """
        if self._differs and all(self._differs.values()):
            raise PayloadUnavailable(next(iter(self._differs.values())))
        parts = (job_id, attempt_id) if attempt_id else (job_id, "handler")
        self.on_open(job_id)
        return TaskFiles(
            self.outside if outside else self.store,
            job_id,
            folder=lambda: self.scratch.folder(*parts),
            clean=lambda: self.scratch.drop(*parts),
            sign=self.sign,
            loop=self._loop,
        )

    def remove_local(self, job_id: str, attempt_id: str = "") -> None:
        """Remove the local directory of an attempt, or everything of a job."""
        self.scratch.drop(job_id, *((attempt_id,) if attempt_id else ()))


def build_files(config: PayloadSettings) -> TaskFilesService | None:
    """The service that the settings mean; None: there are no files."""
    store = build_payloads(config)
    return None if store is None else TaskFilesService(store, ScratchDirectory(config.task_files_dir))
