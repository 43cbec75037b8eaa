"""RedisStorage: the store that several orchestrators share."""

import logging
import re
import secrets
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from ...clock import Clock, SystemClock
from ...errors import StorageError, StorageFailed, StorageUnavailable
from ...model import (
    Change,
    CommitOutcome,
    Event,
    Job,
    JobMessage,
    OutboxEntry,
    QueueKey,
    QueueStatus,
    Task,
    Worker,
    job_id_of_task,
    queue_key_text,
)
from ..base import Due, Hint, TaskClaim, Version
from ..codec import decode_job, decode_message, encode, micros, moment_of, readable
from ..group_commit import GroupCommit
from .checks import check_server
from .crier import Crier
from .decode import (
    due_of,
    entry_of,
    events_of,
    hints_of,
    lane_status_of,
    placed_task,
    task_of,
)
from .encode import field_of, length, version_name
from .flushing import Batch, Flusher
from .line import Refused, Reply, Words
from .link import Link
from .presence import Presence
from .scripts import Scripts
from .shelves import RedisShelves
from .workers import RedisWorkers

log = logging.getLogger("regista.storage")

#: Seconds for which a job stays readable after its end, with its events.
ENDED_TTL_S = 7 * 24 * 3600.0
#: Entries that the outbox keeps when nobody prunes it.
OUTBOX_LIMIT = 1_000_000
#: How long a call waits for a server that is away, in seconds.
PATIENCE_S = 2.0
#: Entries that one call prunes: a server that sweeps for long answers nobody else.
PRUNED_AT_ONCE = 1000
_PRIVATE = re.compile(r"[A-Za-z0-9_.-]+")


class RedisStorage(RedisWorkers, RedisShelves):
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
        outbox_limit: int = OUTBOX_LIMIT,
        patience_s: float = PATIENCE_S,
        now: str | None = None,
    ) -> None:
        if not _PRIVATE.fullmatch(namespace):
            raise StorageError(f"namespace: expected letters, digits and _.-, got {namespace!r}")
        self._clock = clock or SystemClock()
        # One tag, so that a cluster keeps all of it on one node: a script sees only what is there.
        self._prefix = f"regista:{{{namespace}}}:"
        name = secrets.token_hex(8)
        self._crier = crier = Crier(url, f"{self._prefix}hints", name, self._tell, patience_s)
        self._presence = Presence(name, self._clock)
        self._link = Link(url, f"regista-{name}", patience_s)
        self._scripts = Scripts(self._link, self._prefix, now)
        self._flusher = Flusher(self._scripts, lambda: crier.origin, ended_ttl_s, outbox_limit, self._tell)
        self._group = GroupCommit(Batch, self._flusher.flush, self._flusher.flushed)
        self._listeners: dict[int, Callable[[Hint], None]] = {}
        self._next_listener = 0
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

    def listen(self, hear: Callable[[Hint], None]) -> Callable[[], None]:
        self._next_listener = key = self._next_listener + 1
        self._listeners[key] = hear
        return lambda: self._listeners.pop(key, None) and None

    async def nudge(self, hints: Sequence[Hint]) -> None:
        words = [word for hint in hints for word in (hint.kind.value, hint.id, hint.to)]
        await self._ask(("PUBLISH", f"{self._prefix}hints", encode((self._crier.origin, words))))
        self._tell(hints)

    def _tell(self, hints: Sequence[Hint]) -> None:
        for hear in list(self._listeners.values()):
            try:
                for hint in hints:
                    hear(hint)
            except Exception:  # a listener's error is nobody else's; hints may be lost anyway
                log.exception("a listener failed", extra={"action": "storage_hint"})

    async def _ask(self, *commands: Words) -> list[Reply]:
        try:
            return await self._link.ask(*commands)
        except Refused as refused:
            raise refused.of(str(commands[0][0])) from None

    def _job_key(self, job_id: str) -> str:
        return f"{self._prefix}job:{job_id}"

    # -- jobs ------------------------------------------------------------------------------------

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        if not changes:
            return []
        batch = self._group.batch()
        answers = [batch.add(change, instance) for change in changes]
        await self._group.wait(self._group.touch())
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

    # -- ready queue -----------------------------------------------------------------------------

    async def claim_ready(
        self, instance: str, versions: Collection[Version], limit: int, lease_s: float
    ) -> list[Job]:
        names = map(version_name, versions)
        bodies = await self._scripts.call("claim_ready", instance, limit, length(lease_s), *names)
        return readable(decode_job, bodies)

    async def extend(self, instance: str, job_ids: Sequence[str], lease_s: float) -> list[str]:
        if not job_ids:
            return []
        kept = await self._scripts.call("extend", instance, length(lease_s), *job_ids)
        return [job_id.decode() for job_id in kept]

    async def relinquish(self, instance: str) -> int:
        return int(await self._scripts.call("relinquish", self._crier.origin, instance))

    async def attend(self, instance: str, versions: Collection[Version], lease_s: float) -> None:
        said = (self._presence.process, instance, length(lease_s), *map(version_name, versions))
        self._presence.learn(instance, (await self._scripts.call("attend", *said)).decode(), lease_s)

    async def stranded(self, limit: int) -> list[Job]:
        if limit < 1:
            return []
        return readable(decode_job, await self._scripts.call("stranded", limit))

    # -- tasks -----------------------------------------------------------------------------------

    async def claim_tasks(
        self, worker: Worker, lanes: Collection[QueueKey], limit: int, now: datetime
    ) -> TaskClaim:
        if limit < 1 or not lanes:
            return TaskClaim([], exhausted=limit > 0)
        cost_of = worker.profile.cost_of
        asked = [
            part
            for queue_key in dict.fromkeys(lanes)
            for part in (queue_key_text(queue_key), cost_of(queue_key.type))
        ]
        said = (self._crier.origin, worker.id, worker.session, micros(now), limit)
        hints, cells, is_gone = await self._scripts.call("claim_tasks", *said, encode(asked))
        self._tell(hints_of(hints))
        return TaskClaim(readable(task_of, cells), exhausted=not is_gone and len(cells) < limit)

    async def lanes(self) -> list[QueueStatus]:
        rows = [lane_status_of(row) for row in await self._scripts.call("lanes")]
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

    async def outbox(self, after: int, limit: int) -> list[OutboxEntry]:
        if limit < 1:
            return []
        (found,) = await self._ask(("XRANGE", f"{self._prefix}outbox", f"({after}-0", "+", "COUNT", limit))
        return readable(entry_of, found)

    async def newest(self) -> int:
        """The number of the newest entry that there ever was; 0 at first."""
        (found,) = await self._ask(("HGET", f"{self._prefix}counters", "entries"))
        return int(found or 0)

    async def leap(self, by: int) -> int:
        """Count on from so many numbers above; returns the last number below the gap."""
        (found,) = await self._ask(("HINCRBY", f"{self._prefix}counters", "entries", by))
        return int(found) - by

    def keep_outbox(self) -> None:
        """A history reads the outbox, and prunes it: nothing may be cut off before."""
        self._flusher.keep_outbox()

    async def prune(self, upto: int) -> None:
        while await self._scripts.call("prune", upto, PRUNED_AT_ONCE):
            pass

    async def tail(self, job_id: str, after_seq: int) -> list[Event]:
        rows = await self._scripts.call("tail", job_id, after_seq)
        return [event for row in rows for event in events_of(job_id, row) if event.seq > after_seq]

    # -- the rest --------------------------------------------------------------------------------

    async def lead(self, name: str, instance: str, ttl_s: float) -> bool:
        return bool(await self._scripts.call("lead", name, instance, length(ttl_s)))

    async def secret(self, name: str) -> bytes:
        made = secrets.token_bytes(32)
        (known,) = await self._ask(("SET", f"{self._prefix}secret:{name}", made, "NX", "GET"))
        secret: bytes = known or made
        return secret
