"""RedisStorage: the store that several orchestrators share."""

import logging
import re
import secrets
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from msgspec.structs import replace

from ...clock import Clock, SystemClock
from ...errors import StorageError, StorageFailed, StorageUnavailable
from ...model import (
    Change,
    CommitOutcome,
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
    job_id_of_task,
    queue_key_text,
)
from ..base import Due, Heartbeat, Hint, HintKind, OutboxPage, TaskClaim, Version
from ..codec import decode_job, decode_message, encode, micros, moment_of, readable
from ..counters import taken
from ..group_commit import GroupCommit
from ..listeners import HintListeners
from ..records import check_records
from .checks import check_server
from .commit_batch import Batch, Flusher
from .decode import (
    due_of,
    entry_of,
    events_of,
    hints_of,
    lane_status_of,
    placed_task,
    records_of,
    task_of,
    worker_of,
)
from .encode import field_of, length, version_name
from .line import Reply, ServerRefusal, Words
from .link import Link
from .pubsub import HintSubscriber
from .scripts import Scripts

log = logging.getLogger("regista.storage")

#: Seconds for which a job stays readable after its end, with its events.
ENDED_TTL_S = 7 * 24 * 3600.0
#: Entries that the outbox should keep where no history prunes it.
OUTBOX_LIMIT = 1_000_000
#: How long a call waits for a server that is away, in seconds.
PATIENCE_S = 2.0
#: Entries that one call prunes: a server that sweeps for long answers nobody else.
PRUNED_AT_ONCE = 1000
_PRIVATE = re.compile(r"[A-Za-z0-9_.-]+")


class RedisStorage:
    """Everything is on the server; nothing is kept here that could change there. Redis 7 or newer, or Valkey.

    Each intention is one round trip: a Lua script, or plain reads sent together. All callers share one
    connection and their calls are pipelined, commits that wait together travel in one call, and each of them is
    safe to send twice. A server that is away makes calls raise `StorageUnavailable` after `patience_s`; when it
    comes back they work again, and no lease lapses before one full lease has passed (FENCES 12).

    `namespace` tells stores on one server apart. `now` is for tests: the Lua text of another clock.
    """

    shared = True

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        *,
        namespace: str = "r0",
        ended_ttl_s: float = ENDED_TTL_S,
        outbox_limit: int | None = None,
        patience_s: float = PATIENCE_S,
        now: str | None = None,
    ) -> None:
        if not _PRIVATE.fullmatch(namespace):
            raise StorageError(f"namespace: expected letters, digits and _.-, got {namespace!r}")
        self._clock = clock or SystemClock()
        # One tag, so that a cluster keeps all of it on one node: a script sees only what is there.
        self._prefix = f"regista:{{{namespace}}}:"
        name = secrets.token_hex(8)
        self._listeners = HintListeners()
        self._crier = crier = HintSubscriber(
            url, f"{self._prefix}hints", name, self._listeners.call, patience_s
        )
        self._link = Link(url, f"regista-{name}", patience_s)
        self._scripts = Scripts(self._link, self._prefix, now)
        self._flusher = Flusher(
            self._scripts, lambda: crier.origin, ended_ttl_s, outbox_limit, self._listeners.call
        )
        self._group = GroupCommit(Batch, self._flusher.flush, self._flusher.flushed)
        self._started = False

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._started:
            return
        try:
            await self._link.open()
            await check_server(self._link, self._prefix)
            await self._scripts.load()
            await self._crier.start()
        except BaseException:
            await self._crier.stop()
            await self._link.close()
            raise
        self._started = True

    async def stop(self) -> None:
        if not self._started:
            return
        self._started = False
        try:
            await self._group.drain()
        except StorageUnavailable as error:  # whoever waited for it was told
            log.warning("stopped with a store that is away: %s", error, extra={"action": "storage_stop"})
        finally:
            await self._crier.stop()
            await self._link.close()

    async def failed(self) -> StorageFailed:
        return await self._group.failed()

    async def now(self) -> datetime:
        return moment_of(float(await self._scripts.call("time")))

    def subscribe(self, callback: Callable[[Hint], None]) -> Callable[[], None]:
        return self._listeners.add(callback)

    async def publish(self, hints: Sequence[Hint]) -> None:
        words = [word for hint in hints for word in (hint.kind.value, hint.id, hint.to)]
        await self._ask(("PUBLISH", f"{self._prefix}hints", encode((self._crier.origin, words))))
        self._listeners.call(hints)

    async def _ask(self, *commands: Words) -> list[Reply]:
        try:
            return await self._link.ask(*commands)
        except ServerRefusal as refused:
            raise refused.of(str(commands[0][0])) from None

    def _job_key(self, job_id: str) -> str:
        return f"{self._prefix}job:{job_id}"

    # -- jobs ------------------------------------------------------------------------------------

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        if not changes:
            return []
        batch = self._group.batch()
        answers = [batch.add(change, instance) for change in changes]
        await self._group.wait(self._group.mark_dirty())
        return [answer.get() for answer in answers]

    async def load(
        self, jobs: Sequence[str], tasks: Sequence[str] = ()
    ) -> tuple[list[Job | None], list[Task | None]]:
        if not jobs and not tasks:
            return [], []
        places = [(job_id, "b") for job_id in jobs]
        for task_id in tasks:
            job_id = job_id_of_task(task_id)
            places.append((job_id, field_of(job_id, task_id)))
        cells = await self._cells(places)
        bodies, tasks_found = cells[: len(jobs)], cells[len(jobs) :]
        return (
            [None if body is None else decode_job(body) for body in bodies],
            [None if cell is None else task_of(cell) for cell in tasks_found],
        )

    async def _cells(self, places: Sequence[tuple[str, str]]) -> list[bytes | None]:
        """What stands in these fields of these jobs: whatever is wanted of one job is one command."""
        wanted: dict[str, list[str]] = {}
        for job_id, field in places:
            wanted.setdefault(job_id, []).append(field)
        replies = await self._ask(
            *[("HMGET", self._job_key(job_id), *fields) for job_id, fields in wanted.items()]
        )
        found = {job_id: iter(reply) for job_id, reply in zip(wanted, replies, strict=True)}
        return [next(found[job_id]) for job_id, _ in places]

    async def tasks_of(self, job_id: str) -> list[Task]:
        (found,) = await self._ask(("HGETALL", self._job_key(job_id)))
        cells = (found[n + 1] for n in range(0, len(found), 2) if found[n][:1] == b"_")
        return [task for _, task in sorted(map(placed_task, cells), key=lambda placed: placed[0])]

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        bodies = await self._ask(*[("HGET", self._job_key(job_id), "b") for job_id in job_ids])
        return [None if body is None else decode_job(body) for body in bodies]

    async def forget_jobs(self, job_ids: Sequence[str]) -> None:
        """Nothing to do: the server forgets ended jobs by itself."""

    # -- ready queue -----------------------------------------------------------------------------

    async def claim_ready(
        self, instance: str, versions: Collection[Version], limit: int, lease_s: float
    ) -> list[Job]:
        names = map(version_name, versions)
        bodies = await self._scripts.call("claim_ready", instance, limit, length(lease_s), *names)
        return readable(decode_job, bodies)

    async def extend_leases(self, instance: str, job_ids: Sequence[str], lease_s: float) -> list[str]:
        if not job_ids:
            return []
        kept = await self._scripts.call("extend_leases", instance, length(lease_s), *job_ids)
        return [job_id.decode() for job_id in kept]

    async def release_leases(self, instance: str) -> int:
        return int(await self._scripts.call("release_leases", self._crier.origin, instance))

    async def stranded(self, known: Collection[Version], limit: int) -> list[Job]:
        if limit < 1:
            return []
        bodies = await self._scripts.call("stranded", limit, *map(version_name, known))
        return readable(decode_job, bodies)

    # -- tasks -----------------------------------------------------------------------------------

    async def claim_tasks(
        self, worker: Worker, keys: Collection[QueueKey], limit: int, now: datetime
    ) -> TaskClaim:
        if limit < 1 or not keys:
            return TaskClaim([], exhausted=limit > 0)
        cost_of = worker.profile.cost_of
        asked = [
            part
            for queue_key in dict.fromkeys(keys)
            for part in (queue_key_text(queue_key), cost_of(queue_key.type))
        ]
        said = (self._crier.origin, worker.id, worker.session, micros(now), limit)
        hints, cells, is_gone = await self._scripts.call("claim_tasks", *said, encode(asked))
        self._listeners.call(hints_of(hints))
        return TaskClaim(readable(task_of, cells), exhausted=not is_gone and len(cells) < limit)

    async def queue_status(self) -> list[QueueStatus]:
        rows = [lane_status_of(row) for row in await self._scripts.call("queue_status")]
        return sorted(rows, key=lambda row: (row.queue_key, row.client))

    async def held_by(self, worker_id: str) -> list[Task]:
        tasks = readable(task_of, await self._scripts.call("held_by", worker_id))
        return sorted(tasks, key=lambda task: (task.job_id, task.index))

    async def holders(self) -> list[str]:
        (workers,) = await self._ask(("SMEMBERS", f"{self._prefix}holders"))
        return sorted(worker.decode() for worker in workers)

    # -- deadlines and messages ------------------------------------------------------------------

    async def due(self, now: datetime, limit: int) -> list[Due]:
        if limit < 1:
            return []
        key = f"{self._prefix}due"
        (found,) = await self._ask(
            ("ZRANGE", key, "-inf", micros(now), "BYSCORE", "LIMIT", 0, limit, "WITHSCORES")
        )
        return [due_of(found[n], found[n + 1]) for n in range(0, len(found), 2)]

    async def next_due(self) -> datetime | None:
        (found,) = await self._ask(("ZRANGE", f"{self._prefix}due", 0, 0, "WITHSCORES"))
        return moment_of(float(found[1])) if found else None

    async def messages(self, limit: int) -> list[JobMessage]:
        if limit < 1:
            return []
        return readable(decode_message, await self._scripts.call("messages", limit))

    # -- outbox ----------------------------------------------------------------------------------

    async def outbox(self, after: int, limit: int) -> OutboxPage:
        found, newest = await self._ask(
            ("XRANGE", f"{self._prefix}outbox", f"({after}-0", "+", "COUNT", max(limit, 0)),
            ("HGET", f"{self._prefix}counters", "entries"),
        )
        return OutboxPage(readable(entry_of, found or ()), int(newest or 0))

    async def skip_outbox_numbers(self, above: int) -> int:
        (found,) = await self._ask(("HINCRBY", f"{self._prefix}counters", "entries", above))
        return int(found) - above

    async def prune(self, upto: int) -> None:
        while await self._scripts.call("prune", upto, PRUNED_AT_ONCE):
            pass

    async def tail(self, job_id: str, after_seq: int) -> list[Event]:
        rows = await self._scripts.call("tail", job_id, after_seq)
        return [event for row in rows for event in events_of(job_id, row) if event.seq > after_seq]

    # -- workers ---------------------------------------------------------------------------------

    async def register(self, worker: Worker, lease_s: float) -> Worker:
        known = replace(worker, session=0, record_version=0, registered_at=self._clock.now())
        arguments = (self._crier.origin, worker.id, encode(known), length(lease_s))
        session = await self._scripts.call("register", *arguments)
        self._listeners.call([Hint(HintKind.WORKER, worker.id)])
        return replace(known, session=session)

    async def heartbeat(self, beats: Sequence[Heartbeat]) -> list[bool]:
        if not beats:
            return []
        arguments = [part for beat in beats for part in (beat.worker_id, beat.session, length(beat.lease_s))]
        return [bool(renewed) for renewed in await self._scripts.call("heartbeat", *arguments)]

    async def update_worker(self, worker: Worker) -> Worker | None:
        body = encode(replace(worker, session=0, record_version=0))
        arguments = (self._crier.origin, worker.id, worker.session, worker.record_version, body)
        if not await self._scripts.call("update_worker", *arguments):
            return None
        self._listeners.call([Hint(HintKind.WORKER, worker.id)])
        return replace(worker, record_version=worker.record_version + 1)

    async def workers(self, ids: Collection[str] | None = None, *, lapsed_only: bool = False) -> list[Worker]:
        if ids is not None and not ids:
            return []
        if lapsed_only:
            rows = await self._scripts.call("lapsed")
        else:
            rows = await self._scripts.call("workers", *(ids or ()))
        found = {worker.id: worker for worker in readable(worker_of, rows)}
        return [found[worker_id] for worker_id in sorted(found) if ids is None or worker_id in ids]

    async def forget_worker(self, worker_id: str, session: int, *, only_if_lapsed: bool = False) -> bool:
        arguments = (self._crier.origin, worker_id, session, int(only_if_lapsed))
        removed = await self._scripts.call("forget_worker", *arguments)
        if removed:
            self._listeners.call([Hint(HintKind.WORKER, worker_id)])
        return bool(removed)

    # -- records and counters --------------------------------------------------------------------

    async def put_records(self, writes: Sequence[RecordWrite]) -> list[bool]:
        if not writes:
            return []
        check_records(writes)
        # They travel with whatever else is flushed now.
        batch = self._group.batch()
        answers = [batch.put(write) for write in writes]
        await self._group.wait(self._group.mark_dirty())
        return [answer.get().ok for answer in answers]

    async def records(
        self, collection: str, *, keys: Sequence[str] | None = None, after: str = "", limit: int = 100
    ) -> list[Record]:
        if limit < 1 or (keys is not None and not keys):
            return []
        if keys is not None:
            return records_of(collection, await self._scripts.call("find_records", collection, *keys))
        return records_of(collection, await self._scripts.call("records", collection, after, limit))

    async def due_records(self, collection: str, now: datetime, limit: int) -> list[Record]:
        if limit < 1:
            return []
        return records_of(collection, await self._scripts.call("due_records", collection, micros(now), limit))

    async def take_tokens(self, bucket: str, n: int, limit: int, window_s: float) -> TokenGrant:
        if limit < 1:
            return taken(0.0, n, limit, window_s)
        ahead_s = await self._scripts.call("take_tokens", bucket, n, limit, repr(float(window_s)))
        return taken(float(ahead_s), n, limit, window_s)

    async def quota_used(self, counter: str) -> int:
        used: int = await self._scripts.call("quota_used", counter)
        return used

    async def lead(self, name: str, instance: str, ttl_s: float) -> bool:
        return bool(await self._scripts.call("lead", name, instance, length(ttl_s)))
