"""MemoryStorage: the reference. Everything else is checked against it."""

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from ..clock import Clock, SystemClock
from ..errors import StorageFailed
from ..model import (
    Change,
    CommitOutcome,
    CommitStatus,
    Event,
    FreeSlots,
    Job,
    JobMessage,
    OutboxEntry,
    QueueKey,
    QueueStatus,
    Task,
    Worker,
)
from ..serialization import safe_text
from .base import Due, Hint, HintKind, TaskClaim, Version
from .codec import UNENCODABLE, decode_job
from .counters import Buckets
from .group_commit import GroupCommit
from .journal import Batch, Journal, NoJournal
from .memory_shelves import MemoryShelves
from .state import State, refuse_ended

log = logging.getLogger("regista.storage")

#: How many ended jobs stay readable where no file keeps them, and how many are cached where one does.
ENDED_IN_MEMORY = 100_000
ENDED_CACHED = 1_000


class MemoryStorage(MemoryShelves):
    """Hot state in memory, written through to a journal by group commit.

    With no journal it is the store of tests and demos. `SqliteStorage` hands in a file, the simulation
    a disk whose power can fail. Worker records, leases and leadership live in memory only, as FENCES
    says: after a restart everybody says hello again.
    """

    shared = False
    #: A deadline in more seconds than this is no news: whoever waits looks again every two seconds anyway.
    near_s = 2.0

    def __init__(self, clock: Clock | None = None, journal: Journal | None = None) -> None:
        self._clock = clock or SystemClock()
        self._journal: Journal = journal or NoJournal()
        self._listeners: dict[int, Callable[[Hint], None]] = {}
        self._next_listener = 0
        self._sessions = 0
        self._started = False
        self._reset()

    def _reset(self) -> None:
        self._state = State(ENDED_CACHED if self._journal.keeps_ended else ENDED_IN_MEMORY, self._clock)
        self._buckets = Buckets(self._clock)
        self._group = GroupCommit(Batch, self._journal.write, self._flushed)
        self._workers: dict[str, tuple[Worker, float]] = {}
        self._slots: dict[str, tuple[list[FreeSlots], float]] = {}
        self._leaders: dict[str, tuple[str, float]] = {}
        self._attending: dict[str, tuple[frozenset[Version], float]] = {}
        self._meta: dict[str, bytes] = {}

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._started:
            return
        snapshot = await self._journal.open()
        try:
            self._state.restore(snapshot, int(self._clock.now().timestamp() * 1_000_000))
        except BaseException:
            await self._journal.close()
            raise
        self._meta.update(snapshot.meta)
        # Microseconds: more than anybody registers, so a session never comes back after a restart.
        self._sessions = max(self._sessions, int(self._clock.now().timestamp() * 1_000_000))
        self._started = True

    async def stop(self) -> None:
        if not self._started:
            return
        self._started = False
        try:
            await self._group.drain()
        finally:
            await self._journal.close()
            if self._journal.keeps_ended:
                # The file has it all; a second start reads it from there.
                self._reset()

    async def failed(self) -> StorageFailed:
        return await self._group.failed()

    async def now(self) -> datetime:
        return self._clock.now()

    def listen(self, hear: Callable[[Hint], None]) -> Callable[[], None]:
        self._next_listener = key = self._next_listener + 1
        self._listeners[key] = hear
        return lambda: self._listeners.pop(key, None) and None

    async def nudge(self, hints: Sequence[Hint]) -> None:
        self._group.batch()
        self._tell(hints)

    def _flushed(self, batch: Batch) -> None:
        self._state.forget_ended(self._group.flushed)
        self._state.shelves.flushed(self._group.flushed)
        hints, deadline = batch.hints, Hint(HintKind.DEADLINE)
        if batch.entries:
            hints[Hint(HintKind.OUTBOX)] = None
        if deadline in hints and not self._state.deadlines.is_near(self._clock.now(), self.near_s):
            del hints[deadline]
        self._tell(hints)

    def _tell(self, hints: Iterable[Hint]) -> None:
        for hear in list(self._listeners.values()):
            try:
                for hint in hints:
                    hear(hint)
            except Exception:  # a listener's error is no failed flush; hints may be lost anyway
                log.exception("a listener failed", extra={"action": "storage_hint"})

    # -- jobs ------------------------------------------------------------------------------------

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        elapsed = self._clock.elapsed()
        batch = self._group.batch()
        number = self._group.touch()
        outcomes = [self._apply(change, batch, number, instance, elapsed) for change in changes]
        await self._group.wait(number)
        return outcomes

    def _apply(
        self, change: Change, batch: Batch, number: int, instance: str, elapsed: float
    ) -> CommitOutcome:
        outcome = None
        job = change.job
        if job is not None and change.expected is None and job.body_hash:
            # Only an id that derives from a key can come back after memory has let go of it.
            outcome = self._refuse_forgotten(change)
        try:
            outcome = outcome or self._state.apply(change, batch, number, instance, elapsed)
        except UNENCODABLE as error:
            # Raised before anything was written; the other changes of this call have nothing to do with it.
            return CommitOutcome(CommitStatus.UNSTORABLE, reason=safe_text(error))
        if outcome.kind is CommitStatus.MISSING:
            outcome = self._refuse_forgotten(change) or outcome
        return outcome

    def _refuse_forgotten(self, change: Change) -> CommitOutcome | None:
        if self._state.find_job(change.job_id) is not None:
            return None
        body = self._forgotten(change.job_id)
        return refuse_ended(change, body) if body is not None else None

    async def load(
        self, jobs: Sequence[str], tasks: Sequence[str] = ()
    ) -> tuple[list[Job | None], list[Task | None]]:
        self._group.batch()
        find = self._state.tasks.find
        return [self._load_job(job_id) for job_id in jobs], [find(task_id) for task_id in tasks]

    def _load_job(self, job_id: str) -> Job | None:
        found = self._state.find_job(job_id)
        body = found[0] if found is not None else self._forgotten(job_id)
        return decode_job(body) if body is not None else None

    def _forgotten(self, job_id: str) -> bytes | None:
        """The bytes of a job that memory has let go of."""
        return self._journal.find_job(job_id) if self._state.may_be_forgotten(job_id) else None

    async def tasks_of(self, job_id: str) -> list[Task]:
        self._group.batch()
        return self._state.tasks_of(job_id)

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        self._group.batch()
        found: list[Job | None] = []
        newest = 0
        for job_id in job_ids:
            body, number = self._state.find_job(job_id) or (self._forgotten(job_id), 0)
            found.append(None if body is None else decode_job(body))
            newest = max(newest, number)
        await self._group.wait(newest)
        return found

    # -- ready queue -----------------------------------------------------------------------------

    async def claim_ready(
        self, instance: str, versions: Collection[Version], limit: int, lease_s: float
    ) -> list[Job]:
        self._group.batch()
        return self._state.claim_ready(instance, versions, limit, self._clock.elapsed(), lease_s)

    async def extend(self, instance: str, job_ids: Sequence[str], lease_s: float) -> list[str]:
        self._group.batch()
        return self._state.extend_leases(instance, job_ids, self._clock.elapsed() + lease_s)

    async def relinquish(self, instance: str) -> int:
        self._group.batch()
        returned = self._state.release_leases(instance)
        if returned:
            self._tell([Hint(HintKind.READY)])
        return returned

    async def attend(self, instance: str, versions: Collection[Version], lease_s: float) -> None:
        self._group.batch()
        self._attending[instance] = (frozenset(versions), self._clock.elapsed() + lease_s)

    async def stranded(self, limit: int) -> list[Job]:
        self._group.batch()
        elapsed = self._clock.elapsed()
        attended = {v for versions, until in self._attending.values() if until > elapsed for v in versions}
        return self._state.stranded(attended, limit, elapsed)

    # -- tasks -----------------------------------------------------------------------------------

    async def claim_tasks(
        self, worker: Worker, lanes: Collection[QueueKey], limit: int, now: datetime
    ) -> TaskClaim:
        batch = self._group.batch()
        if limit < 1 or not self._state.tasks.queues.has_any(lanes):
            return TaskClaim([], exhausted=limit > 0)  # nothing to offer is not worth a flush
        if worker.session < self._state.tasks.sessions.get(worker.id, 0):
            return TaskClaim([], exhausted=False)
        number = self._group.touch()
        tasks = self._state.claim_tasks(worker, lanes, limit, now, batch, number)
        await self._group.wait(number)
        return TaskClaim(tasks, exhausted=len(tasks) < limit)

    async def lanes(self) -> list[QueueStatus]:
        self._group.batch()
        return self._state.tasks.queues.status()

    async def held_by(self, worker_id: str) -> list[Task]:
        self._group.batch()
        return self._state.tasks.held_by(worker_id)

    async def holders(self) -> list[str]:
        self._group.batch()
        return self._state.tasks.holders()

    # -- deadlines and messages ------------------------------------------------------------------

    async def due(self, now: datetime, limit: int) -> list[Due]:
        self._group.batch()
        return self._state.due(now, limit)

    async def next_due(self) -> datetime | None:
        self._group.batch()
        return self._state.deadlines.earliest()

    async def messages(self, limit: int) -> list[JobMessage]:
        self._group.batch()
        return self._state.messages(limit)

    # -- workers ---------------------------------------------------------------------------------

    async def register(self, worker: Worker, lease_s: float) -> Worker:
        self._group.batch()
        self._sessions += 1
        known = replace(worker, session=self._sessions, record_version=0, registered_at=self._clock.now())
        self._workers[worker.id] = (known, self._clock.elapsed() + lease_s)
        self._state.tasks.sessions[worker.id] = known.session
        self._tell_of(worker.id)
        return known

    def _tell_of(self, worker_id: str) -> None:
        self._tell([Hint(HintKind.WORKER, worker_id)])

    async def heartbeat(self, worker_id: str, session: int, lease_s: float) -> bool:
        self._group.batch()
        known = self._workers.get(worker_id)
        if known is None or known[0].session != session:
            return False
        self._workers[worker_id] = (known[0], self._clock.elapsed() + lease_s)
        return True

    async def note(self, worker: Worker) -> Worker | None:
        self._group.batch()
        known = self._workers.get(worker.id)
        noted = replace(worker, record_version=worker.record_version + 1)
        if known is None or known[0] == noted:
            return None if known is None else noted
        if (known[0].session, known[0].record_version) != (worker.session, worker.record_version):
            return None
        self._workers[worker.id] = (noted, known[1])
        self._tell_of(worker.id)
        return noted

    async def worker(self, worker_id: str) -> Worker | None:
        self._group.batch()
        known = self._workers.get(worker_id)
        return None if known is None else known[0]

    async def workers(self) -> list[Worker]:
        self._group.batch()
        return [self._workers[worker_id][0] for worker_id in sorted(self._workers)]

    async def show_slots(self, instance: str, slots: Sequence[FreeSlots], ttl_s: float) -> None:
        self._group.batch()
        self._slots[instance] = (list(slots), self._clock.elapsed() + ttl_s)
        self._tell([Hint(HintKind.SLOTS, instance)])

    async def slots(self) -> dict[str, list[FreeSlots]]:
        self._group.batch()
        elapsed = self._clock.elapsed()
        return {instance: slots for instance, (slots, until) in self._slots.items() if until > elapsed}

    async def lapsed(self) -> list[Worker]:
        self._group.batch()
        elapsed = self._clock.elapsed()
        return [worker for worker, until in self._workers.values() if until <= elapsed]

    async def forget(self, worker_id: str, session: int, *, lapsed: bool = False) -> bool:
        self._group.batch()
        known = self._workers.get(worker_id)
        if known is None or known[0].session != session:
            return False
        if lapsed and known[1] > self._clock.elapsed():
            return False
        del self._workers[worker_id]
        self._state.tasks.sessions.pop(worker_id, None)
        self._tell_of(worker_id)
        return True

    # -- outbox ----------------------------------------------------------------------------------

    async def outbox(self, after: int, limit: int) -> list[OutboxEntry]:
        self._group.batch()
        return self._state.outbox.after(after, limit, self._group.flushed)

    async def prune(self, upto: int) -> None:
        batch = self._group.batch()
        batch.prune = max(batch.prune, upto)
        # Not worth a flush of its own: it rides with the next commit.
        self._state.outbox.prune(upto)

    async def forget_ended(self, job_ids: Sequence[str]) -> None:
        """Forget these jobs for good, where they have ended: nobody need ask for them any more."""
        self._state.drop_ended(job_ids)
        forget = getattr(self._journal, "forget", None)
        if forget is not None:
            await forget(job_ids)

    async def tail(self, job_id: str, after_seq: int) -> list[Event]:
        self._group.batch()
        return self._state.outbox.tail(job_id, after_seq, self._group.flushed)

    # -- the rest --------------------------------------------------------------------------------

    async def lead(self, name: str, instance: str, ttl_s: float) -> bool:
        self._group.batch()
        elapsed = self._clock.elapsed()
        leader = self._leaders.get(name)
        if leader is not None and leader[0] != instance and leader[1] > elapsed:
            return False
        self._leaders[name] = (instance, elapsed + ttl_s)
        return True

    async def secret(self, name: str) -> bytes:
        batch = self._group.batch()
        if name not in self._meta:
            self._meta[name] = batch.meta[name] = secrets.token_bytes(32)
            self._group.touch()
        await self._group.drain()  # somebody else may have made it a moment ago
        return self._meta[name]
