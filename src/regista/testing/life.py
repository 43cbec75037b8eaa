"""Life: one run of an orchestrator on a virtual loop, from its start to a power cut or its end."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from ..blueprint import StateMachineBlueprint
from ..clock import Clock, IdGenerator
from ..config import Config
from ..errors import StorageFailed
from ..history.base import HistoryStorage
from ..model import ClientConfig, Event
from ..orchestrator import OrchestratorEngine
from ..sdk.local import LocalWorker
from ..sdk.tasks import Worker
from ..storage.base import HintKind
from ..storage.codec import decode_entry
from ..storage.journal import JournalBatch, Snapshot
from ..storage.memory import MemoryStorage
from .disk import PowerCut, SimulatedDisk
from .letterbox import Letterbox

log = logging.getLogger("regista.testing")

#: A worker of the kit never falls silent by itself, so nobody has to hear its heart beat.
_FOR_EVER_S = 1000 * 366 * 86_400.0
#: How soon the chores run again while something happens. Each idle turn doubles it.
_FIRST_TURN_S = 1.0

When = Literal["before", "after"]


class Fuse(Struct):
    """Blows at a commit boundary: at the nth write from now, or at the first that carries such an event."""

    writes: int | None
    carries: Callable[[Event], bool] | None
    when: When

    def blows(self, batch: JournalBatch) -> bool:
        """Whether this write is the one."""
        if self.writes is not None:
            self.writes -= 1
            return self.writes == 0
        assert self.carries is not None
        entries = (decode_entry(body) for _, body in batch.entries)
        return any(self.carries(event) for entry in entries for event in entry.numbered())


class Outlet:
    """The connection of one life to the disk. Once it is cut, nothing passes any more."""

    keeps_ended = True

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self.fuse: Fuse | None = None
        self.is_cut = asyncio.Event()

    def cut(self) -> None:
        """The power fails now; a write that is under way is lost."""
        self._disk.pull_the_plug()
        self.is_cut.set()

    async def open(self) -> Snapshot:
        return await self._disk.open()

    async def write(self, batch: JournalBatch) -> None:
        if self.is_cut.is_set():
            raise PowerCut
        fuse = self.fuse
        blows = fuse is not None and fuse.blows(batch)
        if fuse is not None and blows:
            self.fuse = None
            if fuse.when == "before":
                self.cut()
                raise PowerCut
        await self._disk.write(batch)
        if blows:
            self.cut()
            raise PowerCut

    def find_job(self, job_id: str) -> bytes | None:
        return self._disk.find_job(job_id)

    async def forget(self, job_ids: Sequence[str]) -> None:
        return None

    async def close(self) -> None:
        return None


class _UnwatchedStorage(MemoryStorage):
    """A failed write is a power cut here: the orchestrator must not stop by itself."""

    async def failed(self) -> StorageFailed:
        await asyncio.Event().wait()
        raise AssertionError("an event that is never set")


class Life:
    """An `OrchestratorEngine` whose chores are run by hand.

    Its own upkeep turns every second: a million turns in fourteen days. Here the chores run when a
    deadline is due, and one second after anything was written, then two, four, eight … while nothing is.
    """

    def __init__(
        self,
        disk: SimulatedDisk,
        config: Config,
        history: HistoryStorage,
        clients: Mapping[str, ClientConfig],
        clock: Clock,
        ids: IdGenerator,
        letterbox: Letterbox,
    ) -> None:
        self.outlet = Outlet(disk)
        self.storage = _UnwatchedStorage(
            clock,
            self.outlet,
            near_s=math.inf,  # the keeper sleeps until a hint comes
        )
        self.director = OrchestratorEngine(
            self.storage, config, history=history, clients=clients, clock=clock, ids=ids
        )
        self.director.workers.lease_s = _FOR_EVER_S
        self.director.webhooks.transport = letterbox
        self._disk = disk
        self._clock = clock
        self._woken = asyncio.Event()
        self.keeper: asyncio.Task[None] | None = None
        #: Set with every flush; whoever waits for something clears it and looks.
        self.stirred = asyncio.Event()

    async def start(self, blueprints: Iterable[StateMachineBlueprint], workers: Sequence[Worker]) -> None:
        """Recover what the disk has, and go on with it."""
        for blueprint in blueprints:
            self.director.register_blueprint(blueprint)
        for worker in workers:
            if worker.skills:
                self.director.add_worker(worker)
        await self.director.start()
        # From here on both are driven by the keeper.
        await self.director.maintenance.stop()
        await self.director.recorder.stop()
        self.director.hints.handlers[HintKind.DEADLINE] = (lambda hint: self.wake(),)
        self.storage.subscribe(lambda _: self.stirred.set())
        self.keeper = asyncio.get_running_loop().create_task(self._keep(), name="keeper")

    async def join(self, worker: Worker) -> None:
        """One more worker comes in."""
        await LocalWorker(worker, self.director.workers, self._clock).start()

    def wake(self) -> None:
        """Run the chores now."""
        self._woken.set()

    async def _keep(self) -> None:
        """Run the chores whenever one of them could have something to do."""
        idle_s, writes = _FIRST_TURN_S, -1
        while True:
            self._woken.clear()
            try:
                run_again_in_s = await self.run_chores()
            except StorageFailed:
                return
            idle_s = idle_s * 2 if self._disk.writes == writes else _FIRST_TURN_S
            writes = self._disk.writes
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), min(idle_s, run_again_in_s))

    async def run_chores(self) -> float:
        """Every chore once, and history; returns after how many seconds something is due."""
        run_again_in_s = float("inf")
        for chore in self.director.maintenance.chores:
            report = await chore.run_once(self._clock.now())
            if report.run_again_in_s is not None:
                run_again_in_s = min(run_again_in_s, report.run_again_in_s)
        try:
            await self.director.recorder.run_once()
        except StorageFailed:
            raise
        except Exception:  # history never breaks a job, here as in a real run
            log.exception("recording history failed; the next turn tries again")
        return run_again_in_s

    async def end(self) -> None:
        """The power is off: whatever still runs is stopped, and reaches nothing any more."""
        self.outlet.cut()
        me = asyncio.current_task()
        while tasks := [task for task in asyncio.all_tasks() if task is not me]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
