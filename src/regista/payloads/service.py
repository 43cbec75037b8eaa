"""FileService: a payload store and the directories of this machine, handed out as the files of jobs."""

import asyncio
from collections.abc import Callable

from ..config.payloads import PayloadConfig
from .base import Method, Payloads
from .build import build_payloads
from .scratch import Scratch
from .task_files import TaskFiles


class FileService:
    """Opens the files of jobs. A worker process has one, and so has an orchestrator."""

    def __init__(self, store: Payloads, scratch: Scratch) -> None:
        self.store = store
        self.scratch = scratch
        #: Makes URLs where the store cannot: (job id, name, method, seconds) → URL. The orchestrator sets it.
        self.sign: Callable[[str, str, Method, float], str] | None = None
        #: Called with the id of a job whose files are asked for: somebody shall clean up after it.
        self.on_open: Callable[[str], None] = lambda job_id: None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """See that the store is there, and remove what killed processes left on this machine."""
        self._loop = asyncio.get_running_loop()
        await self.store.start()
        await asyncio.to_thread(self.scratch.sweep)

    async def stop(self) -> None:
        """Remove the directories of this process. Twice is fine, and so is before `start`."""
        await asyncio.to_thread(self.scratch.close)

    def open(self, job_id: str, attempt_id: str = "") -> TaskFiles:
        """The files of a job, for one attempt at a task (or, without one, for its handlers)."""
        parts = (job_id, attempt_id) if attempt_id else (job_id, "handler")
        self.on_open(job_id)
        return TaskFiles(
            self.store,
            job_id,
            folder=lambda: self.scratch.folder(*parts),
            clean=lambda: self.scratch.drop(*parts),
            sign=self.sign,
            loop=self._loop,
        )

    def put_away(self, job_id: str, attempt_id: str = "") -> None:
        """Remove the local directory of an attempt, or everything of a job."""
        self.scratch.drop(job_id, *((attempt_id,) if attempt_id else ()))


def build_files(config: PayloadConfig) -> FileService | None:
    """The service that the settings mean; None: there are no files."""
    store = build_payloads(config)
    return None if store is None else FileService(store, Scratch(config.task_files_dir))
