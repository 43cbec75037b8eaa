"""Main: runs workers in a process of their own until a signal stops them."""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from typing import Protocol

from ..aio import event_loop_class
from ..config import WorkerConfig
from ..payloads.task_files import TaskFilesProvider
from .profile import choose_worker_id
from .remote import RemoteWorker
from .tasks import Worker

log = logging.getLogger("regista.worker")

#: How long the end of the process waits for tasks that were cancelled.
_LAST_TASKS_S = 1.0


class Terminal:
    """The terminal that this process was started at, if it was."""

    def __init__(self) -> None:
        self._fd = next((fd for fd in (0, 1, 2) if os.isatty(fd)), None)

    @property
    def gone(self) -> bool:
        """It was there, and was closed: nobody is left who could stop us."""
        return self._fd is not None and not os.isatty(self._fd)


class Files(TaskFilesProvider, Protocol):
    """The files of jobs, with a life; `regista.payloads.files_service.build_files` makes them from the settings."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


def run(workers: Sequence[Worker], config: WorkerConfig | None = None, files: Files | None = None) -> None:
    """Perform until SIGTERM or SIGINT. Blocks.

    The first signal drains: nothing new, what runs may finish within `shutdown_timeout_s`, its results are
    delivered, and the rest is handed back. The second one hands back at once. SIGHUP changes nothing.
    """
    if not workers:
        raise ValueError("expected at least one Worker to run, got none")
    config = config if config is not None else WorkerConfig.from_env()
    _warn_of_queues(workers, config)
    loop = (event_loop_class() or asyncio.new_event_loop)()
    try:
        loop.run_until_complete(_run(workers, config, files))
    finally:
        _close(loop)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop. A task that ignores its cancellation does not keep the process, as `asyncio.run` would let it."""
    leftover = asyncio.all_tasks(loop)
    for task in leftover:
        task.cancel()
    if leftover:
        loop.run_until_complete(asyncio.wait(leftover, timeout=_LAST_TASKS_S))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def _warn_of_queues(workers: Sequence[Worker], config: WorkerConfig) -> None:
    """The operator's queues win over those of the code, which may not be meant for every worker of it."""
    declared = [
        each for each in workers if each.queues is not None and set(each.queues) != set(config.queues)
    ]
    if config.queues and len(workers) > 1 and declared:
        log.warning(
            "%s takes tasks of %s only, and not of the queues that its code names; pick single workers with --worker",
            ", ".join(each.name for each in declared),
            ", ".join(config.queues),
            extra={"action": "queues_overruled"},
        )


async def _run(workers: Sequence[Worker], config: WorkerConfig, files: Files | None) -> None:
    if files is not None:
        await files.start()
    try:
        await _perform(workers, config, files)
    finally:
        if files is not None:
            await files.stop()


async def _perform(workers: Sequence[Worker], config: WorkerConfig, files: Files | None) -> None:
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[str] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number.name)
    loop.add_signal_handler(signal.SIGHUP, _hung_up, Terminal(), signals)
    alone = len(workers) == 1
    remotes = [
        RemoteWorker(each, config, worker_id=choose_worker_id(each, config, alone), files=files)
        for each in workers
    ]
    for remote in remotes:
        await remote.start()
    log.info("%s: drains, then stops", await signals.get(), extra={"action": "draining"})
    hurrying = loop.create_task(_hurry(signals, remotes))
    await asyncio.gather(*(remote.stop() for remote in remotes))
    hurrying.cancel()


def _hung_up(terminal: Terminal, signals: "asyncio.Queue[str]") -> None:
    """A worker survives SIGHUP, unless it means that the terminal is gone."""
    if terminal.gone:
        signals.put_nowait("SIGHUP")
    else:
        log.info(
            "SIGHUP: a worker has nothing to read again; new settings, tokens and certificates need a restart",
            extra={"action": "reload_ignored"},
        )


async def _hurry(signals: "asyncio.Queue[str]", remotes: Sequence[RemoteWorker]) -> None:
    log.warning("%s again: stops now", await signals.get(), extra={"action": "stopping"})
    for remote in remotes:
        remote.skip_grace()
