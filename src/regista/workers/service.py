"""WorkerService: sessions, heartbeats and results of workers, and the attempts that they hold. FENCES 9 to 14."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock
from ..dispatch.connected import ConnectedWorker, WorkerConnection
from ..dispatch.dispatcher import Dispatcher
from ..engines.base import TaskEngine
from ..model import (
    AttemptState,
    EventType,
    ResultVerdict,
    Task,
    TaskResult,
    Worker,
    split_attempt_id,
)
from ..storage.base import Heartbeat, StorageBackend, find_worker, shared_secret
from .attempts import AttemptTracker, HeldTasks, offer_again
from .info import WorkerInfo, describe_worker, describe_workers
from .records import WorkerRecords, with_reputation

log = logging.getLogger("regista.workers")

_decode_any = msgspec.msgpack.Decoder().decode


class HeartbeatReply(Struct, frozen=True):
    """The answer to a heartbeat."""

    #: False: the session is over, register again.
    known: bool
    #: Attempts to stop: cancelled ones, and ones that are no longer the worker's.
    cancel: tuple[str, ...] = ()


class WorkerService:
    """Registers workers, hears them, and takes back what they cannot finish."""

    def __init__(
        self,
        storage: StorageBackend,
        tasks: HeldTasks,
        engine: TaskEngine,
        dispatcher: Dispatcher,
        clock: Clock,
        instance: str,
        lease_s: float,
        progress_sinks: Sequence[Callable[[str, float | None, str], None]] = (),
    ) -> None:
        """`progress_sinks` are called with attempt, value and message of each progress report."""
        self._storage = storage
        self._tasks = tasks
        self._engine = engine
        self._dispatcher = dispatcher
        self._clock = clock
        self._instance = instance
        self.lease_s = lease_s
        self.records = WorkerRecords(storage, instance)
        self._attempts = AttemptTracker(engine, clock)
        self._progress_sinks = progress_sinks
        #: What is known of a worker that registers (maintenance/reputation.py); None: it is taken as it comes.
        self.reputation_of: Callable[[str], Awaitable[float | None]] | None = None
        self._cluster_id = ""
        self._arriving: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lease_of(self, worker: Worker) -> float:
        """Seconds without a sign of life after which this worker counts as lost."""
        return self.lease_s if worker.lease_s is None else worker.lease_s

    async def cluster_id(self) -> str:
        """Names the store: attempts that it gave are reported to it and to no other (FENCES 11)."""
        if not self._cluster_id:
            self._cluster_id = sha256(await shared_secret(self._storage, "cluster")).hexdigest()[:16]
        return self._cluster_id

    # -- coming ----------------------------------------------------------------------------------

    async def register(
        self,
        worker: Worker,
        running: Collection[str] | None,
        connection: WorkerConnection,
        undelivered: Collection[str] = (),
    ) -> tuple[Worker, tuple[str, ...]]:
        """Give the worker a session, and connect it. Returns the attempts that it should stop (FENCES 11).

        What the store says it holds and it does not report is offered again if it never started, and
        lost otherwise. A worker that does not say what it runs (None) keeps all of it, and its heartbeats
        decide; but what is known to be `undelivered` is offered again.

        A new process under an old id (another incarnation) has nothing of its predecessor: what that one was given
        and this one does not report is closed as undelivered or lost. Offered again under the same id, a task that
        kills its worker at once would do so for ever.

        A process that is registered keeps its session, so that it may register with every instance. While it is
        connected to another instance, it stays connected there, and all that it holds.
        """
        async with self._arrival(worker.id):
            worker = replace(await self._with_reputation(worker), instance=self._instance)
            known = await self.records.keep_session(worker, self.lease_of(worker))
            if known is not None and self.records.streams_elsewhere(known):
                return known, await self._to_stop(known.id, running)
            elsewhere = known is not None and known.instance != self._instance
            # Before anything else: what the old session loses must not be offered to it again.
            replaced = self._disconnect(worker.id, None)
            if known is None:
                restarted = await self.records.is_other_process(worker)
                known = await self._storage.register(worker, self.lease_of(worker))
                if restarted:
                    running = running or ()
                    held = await self._tasks.held_by(worker.id)
                    await self._attempts.close_predecessors(worker.id, held, {*running, *undelivered})
            else:
                known = await self.records.move_here(known, worker.transport, worker.lease_s) or known
            stop = await self._connect(known, None if elsewhere else running, connection, undelivered)
            _close_replaced(replaced, connection, known.session)
            if elsewhere:
                stop = await self._to_stop(known.id, running)
            return known, stop

    async def _to_stop(self, worker_id: str, running: Collection[str] | None) -> tuple[str, ...]:
        """Of what it runs, what it should not: attempts that it does not hold, and cancelled ones."""
        held = {task.attempt_id: task for task in await self._tasks.held_by(worker_id)}
        return tuple(a for a in running or () if a not in held or held[a].cancel_requested)

    async def attach(
        self,
        connection: WorkerConnection,
        worker_id: str,
        session: int,
        *,
        running: Collection[str] | None,
        lease_s: float | None,
    ) -> tuple[str, ...] | None:
        """Connect a registered worker over another connection, under the session that it has.

        It may have registered with another instance. `running` as for `register`: None, and it keeps what it holds.
        Returns the attempts that it should stop; None when that session is over: register again.
        """
        async with self._arrival(worker_id):
            stored = await self.records.renew(
                worker_id, session, self.lease_s if lease_s is None else lease_s
            )
            if stored is None:
                return None
            connected = self._dispatcher.find(worker_id)
            draining = connected is not None and connected.draining
            replaced = self._disconnect(worker_id, None)
            worker = await self.records.move_here(stored, connection.transport, lease_s)
            if worker is None:
                return None
            stop = await self._connect(worker, running, connection, (), draining)
            _close_replaced(replaced, connection, session)
            return stop

    async def free_ended(self, worker_id: str) -> None:
        """Free the slots of attempts that are the worker's no more: they may have ended at another instance."""
        held = {task.attempt_id for task in await self._tasks.held_by(worker_id)}
        self._forget_strays(worker_id, held, ())

    async def sync_with_record(self, worker_id: str) -> None:
        """The record of a worker was written: it went elsewhere, is gone, or somebody wants it drained."""
        before = self._dispatcher.find(worker_id)
        worker = await find_worker(self._storage, worker_id)
        connected = self._dispatcher.find(worker_id)
        # Whoever sat down while we read knows better than what we read.
        if connected is not None and connected is before:
            self.follow_record(connected, worker)

    def follow_record(self, connected: ConnectedWorker, worker: Worker | None) -> bool:
        """Apply the record, which was read while the worker was connected here. True: it is no longer connected here."""
        known = connected.worker
        if connected.worker_class is None or (worker is not None and worker.session < known.session):
            return False
        if worker is None or worker.session > known.session:
            # It is gone, or has registered elsewhere.
            self._dispatcher.disconnect(known.id, known.session)
            return True
        if worker.record_version < known.record_version:
            return False  # old news
        if known.transport != "poll" and worker.instance != self._instance:
            self._dispatcher.disconnect(known.id, worker.session)  # it came back to another instance
            return True
        if worker.draining != known.draining:
            connected.worker = replace(known, draining=worker.draining, record_version=worker.record_version)
            self._dispatcher.drain(known.id, worker.draining)
        if worker.profile.reputation != known.profile.reputation:
            profile = replace(connected.worker.profile, reputation=worker.profile.reputation)
            self._dispatcher.update(replace(connected.worker, profile=profile))
        return False

    def disconnected(self, worker_id: str, session: int) -> None:
        """Its stream is closed: it is offered nothing until it is back, and all instances are told so."""
        self._dispatcher.cut(worker_id, session)
        self._engine.run_soon(self._store_disconnection(worker_id, session), "worker-disconnected")

    async def _store_disconnection(self, worker_id: str, session: int) -> None:
        """Write down that it is not connected, unless it has come back meanwhile, to us or to another one."""

        def change(stored: Worker) -> Worker:
            connected = self._dispatcher.find(worker_id)
            if connected is None or connected.disconnected_at is None or stored.instance != self._instance:
                return stored
            return replace(stored, disconnected_at=connected.disconnected_at)

        async with self._arrival(worker_id):
            await self.records.rewrite(worker_id, session, change)

    async def _with_reputation(self, worker: Worker) -> Worker:
        """The worker with the reputation that it earned before, under whatever session."""
        known = None if self.reputation_of is None else await self.reputation_of(worker.id)
        return worker if known is None else with_reputation(worker, known)

    async def set_reputation(self, worker_id: str, reputation: float) -> bool:
        """Store the reputation of a worker, wherever it is connected. False when it is not registered."""
        if not await self.records.set_reputation(worker_id, reputation):
            return False
        await self.sync_with_record(worker_id)  # the hint may come a moment later than the answer
        return True

    def _arrival(self, worker_id: str) -> asyncio.Lock:
        """One after the other: of two arrivals of one worker the newer session must be the last to sit."""
        return self._arriving.setdefault(worker_id, asyncio.Lock())

    async def _connect(
        self,
        worker: Worker,
        running: Collection[str] | None,
        connection: WorkerConnection,
        undelivered: Collection[str] = (),
        draining: bool = False,
    ) -> tuple[str, ...]:
        """Compare what the worker reports with what is stored, and connect it. Returns what it should stop."""
        held = {task.attempt_id: task for task in await self._tasks.held_by(worker.id)}
        kept = [a for a in held if (a not in undelivered if running is None else a in running)]
        again: list[Task] = []
        lost_ones: list[Task] = []
        for attempt, task in held.items():
            if attempt not in kept and not self._attempts.is_reported(attempt):
                (lost_ones if self._attempts.has_started(task) else again).append(task)
        await self._attempts.close(lost_ones, EventType.TASK_LOST)
        readopted = await offer_again(self._tasks, self._engine, again, worker)
        holding = {attempt: held[attempt].type for attempt in kept}
        holding.update((task.attempt_id, task.type) for task in readopted)
        isolated = [attempt for attempt in kept if held[attempt].isolated]
        isolated += [task.attempt_id for task in readopted if task.isolated]
        connected = self._dispatcher.connect(
            worker, connection, holding, isolated, draining or worker.draining
        )
        self._note_seen(connected)
        self._dispatcher.deliver(readopted)
        await self.sync_with_record(
            worker.id
        )  # changes made before the worker was connected here were missed
        # What it has no right to any more, and what was cancelled while nobody could tell it (FENCES 7).
        return tuple(a for a in running or () if a not in held or held[a].cancel_requested)

    # -- being there -----------------------------------------------------------------------------

    def _note_seen(self, connected: ConnectedWorker) -> None:
        connected.last_seen, connected.renewed_at = self._clock.now(), self._clock.elapsed()

    async def touch(self, worker_id: str, session: int) -> bool:
        """Renew the lease and nothing else. False: the session is over."""
        connected = self._dispatcher.find(worker_id)
        lease_s = self.lease_s if connected is None else self.lease_of(connected.worker)
        if not (await self._storage.heartbeat([Heartbeat(worker_id, session, lease_s)]))[0]:
            return False
        if connected is not None and connected.worker.session == session:
            self._note_seen(connected)
        return True

    async def renew(self, workers: Sequence[ConnectedWorker]) -> list[bool]:
        """Renew the leases of connected workers that report that they hold nothing.

        For each, whether that was all. False, and nothing is renewed, where the worker holds something after all, or its
        session is over: then its `heartbeat` says more.
        """
        holders = frozenset(await self._storage.holders())
        beats: dict[int, Heartbeat] = {}
        for index, connected in enumerate(workers):
            worker = connected.worker
            if connected.is_connected and not connected.attempts and worker.id not in holders:
                beats[index] = Heartbeat(worker.id, worker.session, self.lease_of(worker))
        renewed = [False] * len(workers)
        answers = await self._storage.heartbeat(list(beats.values())) if beats else []
        for index, is_renewed in zip(beats, answers, strict=True):
            renewed[index] = is_renewed
            if is_renewed:
                self._note_seen(workers[index])
        return renewed

    async def heartbeat(
        self,
        worker_id: str,
        session: int,
        running: Collection[str] | None,
        *,
        began: float | None = None,
        fresh: Collection[str] = (),
    ) -> HeartbeatReply:
        """Renew the lease, learn what has started, and say what to stop.

        A heartbeat that does not say what runs (None) decides nothing. One that `began` (by `elapsed`) before
        an offer, or before the attempts that are `fresh` left for the worker, cannot know them.
        """
        if not await self.touch(worker_id, session):
            return HeartbeatReply(known=False)
        held = {task.attempt_id: task for task in await self._tasks.held_by(worker_id)}
        if running is not None:
            listed = frozenset(running)
            for attempt, task in held.items():
                if attempt in listed:
                    self._attempts.seen(task)
                elif attempt not in fresh and not self._offered_after(task, began):
                    await self._note_missing(task)
            self._forget_strays(worker_id, held, listed)
        stop = [attempt for attempt, task in held.items() if task.cancel_requested]
        stop += [attempt for attempt in running or () if attempt not in held]
        return HeartbeatReply(known=True, cancel=tuple(stop))

    def _offered_after(self, task: Task, began: float | None) -> bool:
        """The offer is younger than the heartbeat. One from the future is not: the clock was set back."""
        if began is None or task.offered_at is None:
            return False
        age_s = (self._clock.now() - task.offered_at).total_seconds()
        return 0 <= age_s < self._clock.elapsed() - began

    async def _note_missing(self, task: Task) -> None:
        connected = self._dispatcher.find(task.worker_id)
        patience_s = None
        if connected is not None and connected.worker.transport == "poll":
            # It never says what it has lost. Not less than a lease: the stock SDK (1.0b20) stops listing a
            # task before its result is on its way.
            patience_s = self.lease_of(connected.worker)
        kind = self._attempts.missing(task, patience_s)
        if kind is not None:
            await self._take_back([task], kind)

    def _forget_strays(self, worker_id: str, held: Collection[str], running: Collection[str]) -> None:
        """Slots are counted from attempts; those that neither side knows any more are free."""
        connected = self._dispatcher.find(worker_id)
        if connected is not None:
            for attempt in [a for a in connected.attempts if a not in held and a not in running]:
                self._dispatcher.release(worker_id, attempt)

    async def _take_back(self, tasks: Sequence[Task], kind: EventType) -> None:
        """The worker is there, and does not have these: they go back to their queues."""
        await self._attempts.close(tasks, kind)
        for task in tasks:
            self._dispatcher.release(task.worker_id, task.attempt_id)

    async def hand_back(self, worker_id: str, attempt_ids: Collection[str]) -> None:
        """The worker will not do these: the ones that it holds go back to their queues, no run spent."""
        held = [task for task in await self._tasks.held_by(worker_id) if task.attempt_id in attempt_ids]
        begun = [task for task in held if task.state is AttemptState.STARTED]
        await self._take_back(begun, EventType.TASK_LOST)
        await self._take_back([task for task in held if task not in begun], EventType.TASK_UNDELIVERED)

    # -- for people ------------------------------------------------------------------------------

    def drain(self, worker_id: str, on: bool = True) -> bool:
        """No new tasks for this worker, by its own word. False when it is not connected here."""
        return self._dispatcher.drain(worker_id, on)

    async def ask_to_drain(self, worker_id: str, on: bool = True) -> bool:
        """The same by a person's word, wherever it is connected. False when nobody knows it."""
        if not await self.records.set_draining(worker_id, on):
            return False
        await self.sync_with_record(worker_id)  # the hint may come a moment later than the answer
        return True

    async def held(self, worker_id: str) -> list[Task]:
        """The tasks in the worker's hands."""
        return await self._tasks.held_by(worker_id)

    async def describe(self) -> list[WorkerInfo]:
        """All registered workers, in the order of their ids."""
        return await describe_workers(self._storage, self._tasks, self._dispatcher, self._instance)

    async def describe_one(self, worker_id: str) -> WorkerInfo | None:
        """One worker; None if it is not registered."""
        return await describe_worker(self._storage, self._tasks, self._dispatcher, self._instance, worker_id)

    # -- going -----------------------------------------------------------------------------------

    async def leave(self, worker_id: str, session: int) -> None:
        """The worker says goodbye: what it still held is handed back at once."""
        self._dispatcher.disconnect(worker_id, session)
        await self.remove(worker_id, session, lapsed=False)

    async def remove(self, worker_id: str, session: int | None, *, lapsed: bool = True) -> int:
        """The worker is gone: its record, then its attempts. Returns how many attempts were lost.

        With `lapsed` only if nobody has heard it meanwhile. The record goes first: a worker that speaks up
        from then on is told to register again, and whoever holds attempts without a record is found by the
        next look, should this one end half-way.
        """
        if session is not None and not await self._storage.forget_worker(
            worker_id, session, only_if_lapsed=lapsed
        ):
            known = await find_worker(self._storage, worker_id)
            if known is not None:
                return 0  # it was heard after all, or has a newer session, and what it holds is that one's
        self._disconnect(worker_id, session)  # what the dead lose must not be offered to them again
        tasks = await self._tasks.held_by(worker_id)
        await self._attempts.close(tasks, EventType.TASK_LOST)
        return len(tasks)

    def _disconnect(self, worker_id: str, session: int | None) -> ConnectedWorker | None:
        """The worker is no longer connected here, under this session or (None) any. Returns what it was."""
        connected = self._dispatcher.find(worker_id)
        if connected is None or session not in (None, connected.worker.session):
            return None
        self._dispatcher.disconnect(worker_id, connected.worker.session)
        return connected

    # -- results and signs of life ---------------------------------------------------------------

    async def find_task(self, attempt_id: str) -> Task | None:
        """The task that an attempt is of, as it stands now."""
        _, (task,) = await self._tasks.load([], [split_attempt_id(attempt_id)[0]])
        return task

    async def deliver(self, result: TaskResult) -> ResultVerdict:
        """A result; answered after the commit that it caused. While the store is away, nothing is forgotten."""
        held = self._holds(result)
        verdict = await self._attempts.report(result)
        if held or verdict.accepted:
            self._attempts.forget(result.task_id)
        return verdict

    def report(self, result: TaskResult) -> "asyncio.Future[ResultVerdict]":
        """A result; the future is done after the commit that it caused."""
        told = self._attempts.report(result)
        if self._holds(result):
            self._attempts.forget(result.task_id)
        else:  # maybe it has no right to speak of this attempt: the verdict tells
            told.add_done_callback(lambda told: self._forget_accepted(result.task_id, told))
        return told

    def _holds(self, result: TaskResult) -> bool:
        """Whoever brings the result has the attempt."""
        connected = self._dispatcher.find(result.worker_id)
        return connected is not None and result.task_id in connected.attempts

    def _forget_accepted(self, attempt_id: str, told: "asyncio.Future[ResultVerdict]") -> None:
        if not told.cancelled() and told.exception() is None and told.result().accepted:
            self._attempts.forget(attempt_id)

    def started(self, attempt_id: str) -> None:
        """The worker has begun. Written down with a later commit; short tasks end before that."""
        self._attempts.started(attempt_id)

    def progress(
        self,
        attempt_id: str,
        value: float | None = None,
        message: str = "",
        checkpoint: Any = None,
        worker_id: str = "",
    ) -> None:
        """How far it is. The newest word wins; the checkpoint is handed to the next attempt.

        Where `worker_id` says who tells it, the word counts only if the attempt is that worker's.
        """
        connected = self._dispatcher.find(worker_id) if worker_id else None
        if worker_id and (connected is None or attempt_id not in connected.attempts):
            return  # not this worker's business (any more), or nothing that anybody has
        if value is not None:
            value = min(1.0, max(0.0, value))
        self._attempts.progress(attempt_id, value, message, checkpoint, worker_id)
        for report in self._progress_sinks:
            report(attempt_id, value, message)

    async def write_signs(self) -> int:
        """Store the signs of life that no result has overtaken; returns how many."""
        return await self._attempts.write()


def _close_replaced(replaced: ConnectedWorker | None, connection: WorkerConnection, session: int) -> None:
    """Close the connection that a worker had before, where it goes on over one of another kind under its session.

    A newer stream closes the older one itself, and says why.
    """
    if replaced is None or replaced.worker.session != session:
        return
    if replaced.connection.transport != connection.transport:
        replaced.connection.close(1000, "the worker has another connection")
