"""MemoryStorage: the reference. Everything else is checked against it."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from msgspec.structs import replace

from ..clock import Clock, SystemClock
from ..errors import StorageFailed
from ..model import (
    Change,
    CommitOutcome,
    CommitStatus,
    Event,
    Job,
    JobMessage,
    QueueKey,
    QueueStatus,
    Record,
    RecordWrite,
    Task,
    TokenGrant,
    Worker,
)
from ..serialization import safe_text
from .base import Due, Heartbeat, Hint, HintKind, OutboxPage, TaskClaim, Version
from .codec import UNENCODABLE, decode_job
from .counters import TokenBuckets
from .group_commit import GroupCommit
from .journal import Journal, JournalBatch, NoJournal
from .listeners import HintListeners
from .records import check_records
from .state import State, refuse_ended

#: How many ended jobs stay readable where no file keeps them, and how many are cached where one does.
ENDED_IN_MEMORY = 100_000
ENDED_CACHED = 1_000
#: A deadline in more seconds than this needs no hint: waiting parts look again every two seconds anyway.
NEAR_S = 2.0


class MemoryStorage:
    """Hot state in memory, written through to a journal by group commit.

    With no journal it is the store of tests and demos. `SqliteStorage` hands in a file, the simulation
    a disk whose power can fail. Worker records, leases and leadership live in memory only, as FENCES
    says: after a restart everybody says hello again.
    """

    shared = False

    def __init__(
        self, clock: Clock | None = None, journal: Journal | None = None, near_s: float = NEAR_S
    ) -> None:
        self._near_s = near_s
        self._clock = clock or SystemClock()
        self._journal: Journal = journal or NoJournal()
        self._listeners = HintListeners()
        self._sessions = 0
        self._started = False
        self._reset()

    def _reset(self) -> None:
        self._state = State(ENDED_CACHED if self._journal.keeps_ended else ENDED_IN_MEMORY, self._clock)
        self._buckets = TokenBuckets(self._clock)
        self._group = GroupCommit(JournalBatch, self._journal.write, self._flushed)
        self._workers: dict[str, tuple[Worker, float]] = {}
        self._leaders: dict[str, tuple[str, float]] = {}

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

    def subscribe(self, callback: Callable[[Hint], None]) -> Callable[[], None]:
        return self._listeners.add(callback)

    async def publish(self, hints: Sequence[Hint]) -> None:
        self._check()
        self._listeners.call(hints)

    def _flushed(self, batch: JournalBatch) -> None:
        self._state.forget_ended(self._group.flushed)
        self._state.records.flushed(self._group.flushed)
        hints, deadline = batch.hints, Hint(HintKind.DEADLINE)
        if batch.entries:
            hints[Hint(HintKind.OUTBOX)] = None
        if deadline in hints and not self._state.deadlines.is_near(self._clock.now(), self._near_s):
            del hints[deadline]
        self._listeners.call(hints)

    def _check(self) -> None:
        """Raise what has failed for good."""
        if self._group.failure is not None:
            raise self._group.failure

    # -- jobs ------------------------------------------------------------------------------------

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        elapsed = self._clock.elapsed()
        batch = self._group.batch()
        number = self._group.mark_dirty()
        outcomes = [self._apply(change, batch, number, instance, elapsed) for change in changes]
        await self._group.wait(number)
        return outcomes

    def _apply(
        self, change: Change, batch: JournalBatch, number: int, instance: str, elapsed: float
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
        self._check()
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
        self._check()
        return self._state.tasks_of(job_id)

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        self._check()
        found: list[Job | None] = []
        newest = 0
        for job_id in job_ids:
            body, number = self._state.find_job(job_id) or (self._forgotten(job_id), 0)
            found.append(None if body is None else decode_job(body))
            newest = max(newest, number)
        await self._group.wait(newest)
        return found

    async def forget_jobs(self, job_ids: Sequence[str]) -> None:
        self._state.drop_ended(job_ids)
        await self._journal.forget(job_ids)

    # -- ready queue -----------------------------------------------------------------------------

    async def claim_ready(
        self, instance: str, versions: Collection[Version], limit: int, lease_s: float
    ) -> list[Job]:
        self._check()
        return self._state.claim_ready(instance, versions, limit, self._clock.elapsed(), lease_s)

    async def extend_leases(self, instance: str, job_ids: Sequence[str], lease_s: float) -> list[str]:
        self._check()
        return self._state.extend_leases(instance, job_ids, self._clock.elapsed() + lease_s)

    async def release_leases(self, instance: str) -> int:
        self._check()
        returned = self._state.release_leases(instance)
        if returned:
            self._listeners.call([Hint(HintKind.READY)])
        return returned

    async def stranded(self, known: Collection[Version], limit: int) -> list[Job]:
        self._check()
        return self._state.stranded(known, limit, self._clock.elapsed())

    # -- tasks -----------------------------------------------------------------------------------

    async def claim_tasks(
        self, worker: Worker, lanes: Collection[QueueKey], limit: int, now: datetime
    ) -> TaskClaim:
        batch = self._group.batch()
        if limit < 1 or not self._state.tasks.queues.has_any(lanes):
            return TaskClaim([], exhausted=limit > 0)  # nothing to offer is not worth a flush
        if worker.session < self._state.tasks.sessions.get(worker.id, 0):
            return TaskClaim([], exhausted=False)
        number = self._group.mark_dirty()
        tasks = self._state.claim_tasks(worker, lanes, limit, now, batch, number)
        await self._group.wait(number)
        return TaskClaim(tasks, exhausted=len(tasks) < limit)

    async def queue_status(self) -> list[QueueStatus]:
        self._check()
        return self._state.tasks.queues.status()

    async def held_by(self, worker_id: str) -> list[Task]:
        self._check()
        return self._state.tasks.held_by(worker_id)

    async def holders(self) -> list[str]:
        self._check()
        return self._state.tasks.holders()

    # -- deadlines and messages ------------------------------------------------------------------

    async def due(self, now: datetime, limit: int) -> list[Due]:
        self._check()
        return self._state.due(now, limit)

    async def next_due(self) -> datetime | None:
        self._check()
        return self._state.deadlines.earliest()

    async def messages(self, limit: int) -> list[JobMessage]:
        self._check()
        return self._state.messages(limit)

    # -- workers ---------------------------------------------------------------------------------

    async def register(self, worker: Worker, lease_s: float) -> Worker:
        self._check()
        self._sessions += 1
        known = replace(worker, session=self._sessions, record_version=0, registered_at=self._clock.now())
        self._workers[worker.id] = (known, self._clock.elapsed() + lease_s)
        self._state.tasks.sessions[worker.id] = known.session
        self._listeners.call([Hint(HintKind.WORKER, worker.id)])
        return known

    async def heartbeat(self, beats: Sequence[Heartbeat]) -> list[bool]:
        self._check()
        return [self._renew(beat) for beat in beats]

    def _renew(self, beat: Heartbeat) -> bool:
        worker, _ = self._workers.get(beat.worker_id, (None, 0.0))
        if worker is None or worker.session != beat.session:
            return False
        self._workers[worker.id] = (worker, self._clock.elapsed() + beat.lease_s)
        return True

    async def update_worker(self, worker: Worker) -> Worker | None:
        self._check()
        known, until = self._workers.get(worker.id, (None, 0.0))
        updated = replace(worker, record_version=worker.record_version + 1)
        if known is None or known == updated:
            return known
        if (known.session, known.record_version) != (worker.session, worker.record_version):
            return None
        self._workers[worker.id] = (updated, until)
        self._listeners.call([Hint(HintKind.WORKER, worker.id)])
        return updated

    async def workers(self, ids: Collection[str] | None = None, *, lapsed_only: bool = False) -> list[Worker]:
        self._check()
        elapsed = self._clock.elapsed()
        wanted = self._workers.keys() if ids is None else self._workers.keys() & set(ids)
        found = (self._workers[worker_id] for worker_id in sorted(wanted))
        return [worker for worker, until in found if not lapsed_only or until <= elapsed]

    async def forget_worker(self, worker_id: str, session: int, *, only_if_lapsed: bool = False) -> bool:
        self._check()
        worker, until = self._workers.get(worker_id, (None, 0.0))
        if worker is None or worker.session != session:
            return False
        if only_if_lapsed and until > self._clock.elapsed():
            return False
        del self._workers[worker_id]
        self._state.tasks.sessions.pop(worker_id, None)
        self._listeners.call([Hint(HintKind.WORKER, worker_id)])
        return True

    # -- outbox ----------------------------------------------------------------------------------

    async def outbox(self, after: int, limit: int) -> OutboxPage:
        self._check()
        outbox = self._state.outbox
        return OutboxPage(outbox.after(after, limit, self._group.flushed), outbox.last)

    async def skip_outbox_numbers(self, above: int) -> int:
        self._check()
        last = self._state.outbox.last
        self._state.outbox.last += above
        return last

    async def prune(self, upto: int) -> None:
        batch = self._group.batch()
        batch.prune = max(batch.prune, upto)
        # Not worth a flush of its own: it rides with the next commit.
        self._state.outbox.prune(upto)

    async def tail(self, job_id: str, after_seq: int) -> list[Event]:
        self._check()
        return self._state.outbox.tail(job_id, after_seq, self._group.flushed)

    # -- records and counters --------------------------------------------------------------------

    async def put_records(self, writes: Sequence[RecordWrite]) -> list[bool]:
        batch = self._group.batch()
        if not writes:
            return []
        check_records(writes)
        number = self._group.mark_dirty()
        done = self._state.records.put(writes, batch, number)
        await self._group.wait(number)
        return done

    async def records(
        self, collection: str, *, keys: Sequence[str] | None = None, after: str = "", limit: int = 100
    ) -> list[Record]:
        self._check()
        records = self._state.records
        found = records.page(collection, after, limit) if keys is None else records.find(collection, keys)
        await self._group.wait(records.unflushed(collection))
        return found

    async def due_records(self, collection: str, now: datetime, limit: int) -> list[Record]:
        self._check()
        found = self._state.records.due(collection, now, limit)
        await self._group.wait(self._state.records.unflushed(collection))
        return found

    async def take_tokens(self, bucket: str, n: int, limit: int, window_s: float) -> TokenGrant:
        self._check()
        return self._buckets.take(bucket, n, limit, window_s)

    async def quota_used(self, counter: str) -> int:
        self._check()
        used = self._state.quotas.used(counter)
        await self._group.drain()
        return used

    async def lead(self, name: str, instance: str, ttl_s: float) -> bool:
        self._check()
        elapsed = self._clock.elapsed()
        leader = self._leaders.get(name)
        if leader is not None and leader[0] != instance and leader[1] > elapsed:
            return False
        self._leaders[name] = (instance, elapsed + ttl_s)
        return True
