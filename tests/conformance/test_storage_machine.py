"""Random calls on memory and sqlite side by side, both checked against a model that is naive on purpose."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from regista.model import (
    AttemptState,
    AwaitBranches,
    AwaitTask,
    AwaitVersion,
    Cancellation,
    Change,
    ChildJob,
    Job,
    JobStatus,
    OutboxEntry,
    Quota,
    RecordWrite,
    Task,
    TaskWrite,
)
from regista.storage.base import Heartbeat, StorageBackend, find_worker
from regista.storage.memory import MemoryStorage
from regista.storage.sqlite.store import SqliteStorage
from regista.testing.clock import Clock
from regista.testing.conformance.storage.kit import (
    ALL,
    FINISHED,
    PARKED,
    START,
    at,
    closed,
    event,
    fenced,
    make_job,
    make_task,
    make_worker,
    message,
    next_of,
    only,
    picture,
    timer,
    write,
)
from regista.testing.disk import SimulatedDisk

from .storage_model import Model, ripe_of

T = TypeVar("T")

VERSIONS = [("film", "v1"), ("film", "v2")]
WORKERS = ["w1", "w2"]
INSTANCES = ["me", "you"]
SHELVES = ["left", "right"]
COUNTERS = ["ann", "bob"]
SHAPES = ["ready", "held", "task", "fan-out", "timer", "human", "version", "cancel", "quarantine", "end"]

picks = st.integers(0, 1 << 16)
some = st.booleans()
instances = st.sampled_from(INSTANCES)
seconds = st.sampled_from([0.0, 0.5, 7.0, 30.0, 61.0])


#: Never over at the very moment at which somebody looks.
lifetimes = st.sampled_from([0.0, 0.25, 7.3, 40.7])
item_writes = st.builds(
    RecordWrite,
    collection=st.sampled_from(SHELVES),
    key=st.sampled_from("abc"),
    value=st.sampled_from([None, b"", b"v", b"\x00\xff"]),
    due=st.none() | st.builds(at, st.integers(-5, 120)),
    expected=st.sampled_from([None, None, 0, 1, 2]),
    ttl_s=st.none() | lifetimes,
)


async def entries_of(store: StorageBackend, after: int) -> list[OutboxEntry]:
    return (await store.outbox(after, ALL)).entries


class StorageMachine(RuleBasedStateMachine):
    """`memory` writes through to a simulated disk, so that it can be restarted like the other one."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="regista-machine-"))
        self.path = self.folder / "jobs.db"
        self.runner = asyncio.Runner()
        self.clock = Clock(START)
        self.disk = SimulatedDisk(lambda: 0)
        self.stores = self._open()
        self.model = Model()
        self.sent: list[Change] = []
        self.sessions: dict[str, list[int]] = {}
        self.forgotten: set[str] = set()
        self.pruned = 0
        self.pruned_entries = 0
        self.numbers = count(1)

    def _open(self) -> tuple[StorageBackend, ...]:
        stores = (
            MemoryStorage(self.clock, self.disk),
            SqliteStorage(self.path, self.clock, owner_patience_s=0),
        )
        for store in stores:
            self.runner.run(store.start())
        return stores

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.stop())
        self.runner.close()
        shutil.rmtree(self.folder)

    # How a rule plays

    def both(self, call: Callable[[StorageBackend], Awaitable[T]]) -> T:
        """The one answer of all stores."""

        async def ask(store: StorageBackend) -> T:
            return await call(store)

        first, *others = [self.runner.run(ask(store)) for store in self.stores]
        assert all(other == first for other in others)
        return first

    def commit(self, *changes: Change, instance: str = "me") -> None:
        self.sent += changes
        answers = self.both(lambda store: store.commit(changes, instance))
        expected = [self.model.commit(change, instance, self.clock.elapsed()) for change in changes]
        assert [(answer.kind, answer.ready) for answer in answers] == expected

    def name(self) -> str:
        return f"{next(self.numbers):04}"

    def live_job(self, pick: int) -> Job | None:
        jobs = [job for job in self.model.jobs.values() if not job.status.terminal]
        return jobs[pick % len(jobs)] if jobs else None

    def live_task(self, pick: int) -> Task | None:
        tasks = list(self.model.tasks.values())
        return tasks[pick % len(tasks)] if tasks else None

    def shaped(self, job: Job, shape: str, pick: int) -> Change:
        """The write that gives the job this shape, with what belongs to it."""
        visit, elapsed = job.visit + 1, self.clock.now() - START
        base = replace(job, visit=visit, version=VERSIONS[pick % 3 == 2][1])
        soon = START + elapsed
        parts: dict[str, Any] = {"drop_tasks": job.revision > 1}
        fields: dict[str, Any] = {"status": JobStatus.RUNNING, "wait": None}
        tasks: list[Task] = []
        if shape == "held":
            parts["keep_lease_s"] = float(pick % 50)
        elif shape in ("task", "fan-out"):
            tasks = [
                make_task(
                    job.id,
                    index,
                    id=f"{job.id}_{visit}_{index}",
                    branch=shape == "fan-out",
                    type=("encode", "probe")[(pick + index) % 2],
                    queue=("", "night")[pick // 2 % 2],
                    priority=float(pick % 3 - 1),
                    client=("", "ann", "bob")[(pick + index) % 3],
                    requirements={"ram_gb": 4} if pick % 6 == 5 else {},
                    queued_at=soon,
                    dispatch_by=at(pick % 100) if pick % 4 == 0 else None,
                    result_by=at(pick % 150) if pick % 5 == 0 else None,
                    attempt_timeout_s=30.0 if pick % 7 == 0 else None,
                    heartbeat_timeout_s=10.0 if pick % 11 == 0 else None,
                )
                for index in range(1 if shape == "task" else 1 + pick % 4)
            ]
            fields = {"status": JobStatus.WAITING_FOR_WORKER, "wait": AwaitTask(tasks[0].id)}
            if shape == "fan-out":
                parts["opens_branches"] = len(tasks)
                wait = AwaitBranches("gather", len(tasks))
                fields = {"status": JobStatus.WAITING_FOR_PARALLEL, "wait": wait}
        elif shape == "timer":
            fields = timer(pick % 200)
        elif shape == "human":
            fields = dict(PARKED)
        elif shape == "version":
            fields["wait"] = AwaitVersion(base.version)
        elif shape == "cancel":
            # The branches stay: the last one wakes the job.
            parts["drop_tasks"] = False
            fields = {"status": JobStatus.CANCELLING, "cancel": Cancellation(soon, at(pick % 300))}
        elif shape == "quarantine":
            fields = {"status": JobStatus.QUARANTINED}
        elif shape == "end":
            fields = dict(FINISHED)
        parts["tasks"] = tuple(TaskWrite(task) for task in tasks)
        parts["events"] = tuple(event(f"{shape} {n}") for n in range(pick % 3))
        return write(replace(base, updated_at=soon, **fields), **parts)

    # Jobs

    @initialize(shapes=st.lists(st.sampled_from(SHAPES[:-2]), min_size=1, max_size=4), pick=picks)
    def begin(self, shapes: list[str], pick: int) -> None:
        self.commit(*(self.shaped(make_job(self.name()), shape, pick + n) for n, shape in enumerate(shapes)))

    @rule(shape=st.sampled_from(SHAPES[:-2]), pick=picks, keyed=some, instance=instances)
    def create(self, shape: str, pick: int, keyed: bool, instance: str) -> None:
        job = make_job(self.name(), body_hash="hash" if keyed else "", data={"n": pick})
        self.commit(self.shaped(job, shape, pick), instance=instance)

    @rule(pick=picks, limit=st.sampled_from([None, 0, 2, 4]), ttl_s=st.sampled_from([20.3, 3600.7]))
    def create_on_a_quota(self, pick: int, limit: int | None, ttl_s: float) -> None:
        change = self.shaped(make_job(self.name()), "ready", pick)
        self.commit(replace(change, quota=Quota(COUNTERS[pick % 2], limit, ttl_s)))

    @rule(
        pick=picks,
        shape=st.sampled_from(SHAPES),
        bears=some,
        says=some,
        instance=instances,
        items=st.lists(item_writes, max_size=2),
    )
    def decide(
        self, pick: int, shape: str, bears: bool, says: bool, instance: str, items: list[RecordWrite]
    ) -> None:
        job = self.live_job(pick)
        if job is None:
            return
        change = replace(self.shaped(next_of(job), shape, pick), records=tuple(items))
        if bears:
            birth = ChildJob(make_job(self.name(), parent_id=job.id), (event("born"),) * (pick % 2))
            change = replace(change, children=(birth,))
        if says:
            known = list(self.model.messages)
            said = known[pick % len(known)] if known and pick % 3 == 0 else self.name()
            change = replace(change, messages=(message(said, job.id, body={"n": pick}),))
        elif self.model.messages and pick % 2:
            change = replace(change, consumes_message=next(iter(self.model.messages)))
        self.commit(change, instance=instance)

    @rule(pick=picks, back=st.integers(1, 2), shape=st.sampled_from(SHAPES))
    def decide_too_late(self, pick: int, back: int, shape: str) -> None:
        job = self.live_job(pick)
        if job is None or job.revision <= back:
            return
        late = self.shaped(next_of(replace(job, revision=job.revision - back)), shape, pick)
        birth = ChildJob(make_job(self.name()), (event("never"),))
        self.commit(replace(late, children=(birth,), messages=(message(self.name()),)))

    @rule(pick=picks, last=some)
    def send_again(self, pick: int, last: bool) -> None:
        change = self.sent[-1] if last else self.sent[pick % len(self.sent)]
        if change.expected is None and change.job_id in self.forgotten:
            return  # only an id that derives from a key can come back after the store's memory let go of it
        self.commit(change)

    @rule(pick=picks, shapes=st.lists(st.sampled_from(SHAPES), min_size=2, max_size=4))
    def decide_many_in_one_commit(self, pick: int, shapes: list[str]) -> None:
        fresh = make_job(self.name())
        changes = [self.shaped(fresh, "ready", pick)]
        for n, shape in enumerate(shapes):
            assert changes[-1].job is not None
            changes.append(self.shaped(next_of(changes[-1].job), shape, pick + n))
        job = self.live_job(pick)
        if job is not None:
            changes.append(self.shaped(next_of(job), shapes[0], pick))
            changes.append(self.shaped(next_of(job), shapes[1], pick))
        self.commit(*changes)

    @rule(pick=picks)
    def change_what_is_not_there(self, pick: int) -> None:
        missing = make_job(self.name(), revision=2)
        self.commit(
            self.shaped(missing, "task", pick), only(missing.id, fenced(closed(make_task(missing.id))))
        )

    @rule(known=some)
    def consume(self, known: bool) -> None:
        waiting = list(self.model.messages)
        self.commit(only("whoever", consumes_message=waiting[-1] if known and waiting else "unknown"))

    # Tasks

    @rule(pick=picks, off=st.sampled_from([0, 0, 0, 1, -1]), how=st.sampled_from(["close", "retry", "queue"]))
    def end_an_attempt(self, pick: int, off: int, how: str) -> None:
        task = self.live_task(pick)
        if task is None:
            return
        now, closes = self.clock.now(), 0
        open_states = (AttemptState.QUEUED, AttemptState.OFFERED, AttemptState.STARTED)
        if how == "close":
            new, closes = closed(task), int(task.branch)
        else:
            pause = at(pick % 90) if how == "retry" else None
            new = replace(
                task,
                attempt=task.attempt + 1,
                state=AttemptState.QUEUED,
                worker_id=None,
                queued_at=now,
                not_before=pause,
                offered_at=None,
            )
        attempt = max(1, task.attempt + off)
        told = (event(how),) * (pick % 2)
        self.commit(only(task.job_id, fenced(new, attempt, open_states), closes_branches=closes, events=told))

    @rule(pick=picks, right=some, cancel=some)
    def start_an_attempt(self, pick: int, right: bool, cancel: bool) -> None:
        task = self.live_task(pick)
        if task is None:
            return
        new = replace(task, state=AttemptState.STARTED, started_at=self.clock.now(), cancel_requested=cancel)
        states = (AttemptState.OFFERED,) if right else (AttemptState.STARTED,)
        self.commit(only(task.job_id, fenced(new, task.attempt, states)))

    @rule(
        worker=st.sampled_from(WORKERS),
        skills=st.sampled_from([("encode",), ("encode", "probe"), ("probe",)]),
        queues=st.sampled_from([None, None, ("night",), ("encode", "probe")]),
        limit=st.integers(0, 3),
        skip=st.integers(0, 1),
    )
    def offer(
        self, worker: str, skills: tuple[str, ...], queues: tuple[str, ...] | None, limit: int, skip: int
    ) -> None:
        who = make_worker(worker, skills, queues=queues, session=7)
        now = self.clock.now()
        lanes = [
            queue_key for queue_key in self.model.lanes() if who.serves(queue_key.queue, queue_key.type)
        ][skip:]
        offered = self.both(lambda store: store.claim_tasks(who, lanes, limit, now))
        assert offered.tasks == self.model.offer(who, lanes, limit, now)

    # Leases, workers, the outbox

    @rule(
        instance=instances,
        which=st.sampled_from([[0], [1], [0, 1]]),
        limit=st.integers(0, 4),
        lease_s=seconds,
    )
    def claim(self, instance: str, which: list[int], limit: int, lease_s: float) -> None:
        versions = [VERSIONS[index] for index in which]
        now = self.clock.elapsed()
        claimable = {
            job_id
            for job_id in self.model.ready(now)
            if (self.model.jobs[job_id].blueprint, self.model.jobs[job_id].version) in versions
        }
        jobs = self.both(lambda store: store.claim_ready(instance, versions, limit, lease_s))
        assert len({job.id for job in jobs} & claimable) == len(jobs) == min(limit, len(claimable))
        for job in jobs:
            assert job == self.model.jobs[job.id]
            self.model.claimed(job.id, instance, now + lease_s)

    @rule(instance=instances, lease_s=seconds)
    def extend(self, instance: str, lease_s: float) -> None:
        now = self.clock.elapsed()
        asked = [*self.model.jobs, "unknown"]
        kept = self.both(lambda store: store.extend_leases(instance, asked, lease_s))
        mine = {job_id: until for job_id, (who, until) in self.model.leases.items() if who == instance}
        assert {job_id for job_id, until in mine.items() if until > now} <= set(kept) <= set(mine)
        for job_id in kept:
            self.model.claimed(job_id, instance, now + lease_s)

    @rule(instance=instances)
    def relinquish(self, instance: str) -> None:
        mine = [job_id for job_id, (who, _) in self.model.leases.items() if who == instance]
        assert self.both(lambda store: store.release_leases(instance)) <= len(mine)
        for job_id in mine:
            del self.model.leases[job_id]

    @rule(by=seconds)
    def let_time_pass(self, by: float) -> None:
        self.clock.move(by)

    @rule(worker=st.sampled_from(WORKERS), lease_s=seconds)
    def register(self, worker: str, lease_s: float) -> None:
        known = self.both(lambda store: store.register(make_worker(worker), lease_s))
        earlier = [session for sessions in self.sessions.values() for session in sessions]
        assert all(session < known.session for session in earlier)
        self.sessions.setdefault(worker, []).append(known.session)

    @rule(worker=st.sampled_from(WORKERS), pick=picks, lease_s=seconds, forget=some)
    def beat_or_leave(self, worker: str, pick: int, lease_s: float, forget: bool) -> None:
        sessions = self.sessions.get(worker, [])
        session = sessions[-1 - pick % len(sessions) % 3] if sessions else 0
        if forget:
            answer = self.both(lambda store: store.forget_worker(worker, session))
        else:
            (answer,) = self.both(lambda store: store.heartbeat([Heartbeat(worker, session, lease_s)]))
        assert not (answer and session != sessions[-1])

    @rule(worker=st.sampled_from(WORKERS), old=some, draining=some, instance=instances)
    def note(self, worker: str, old: bool, draining: bool, instance: str) -> None:
        known = self.both(lambda store: find_worker(store, worker))
        if known is None:
            assert self.both(lambda store: store.update_worker(make_worker(worker))) is None
            return
        asked = replace(
            known, draining=draining, instance=instance, record_version=known.record_version - old
        )
        noted = self.both(lambda store: store.update_worker(asked))
        wanted = replace(asked, record_version=asked.record_version + 1)
        assert noted == (wanted if not old or wanted == known else None)
        assert self.both(lambda store: find_worker(store, worker)) == (noted or known)

    @rule(share=st.integers(0, 4))
    def prune(self, share: int) -> None:
        entries = self.both(lambda store: entries_of(store, self.pruned))
        if entries and share:
            last = len(entries) * share // 4 - 1 if len(entries) >= 4 else 0
            self.pruned = entries[last].number
            self.pruned_entries += last + 1
            self.both(lambda store: store.prune(self.pruned))

    @rule(instance=instances, ttl_s=seconds)
    def lead(self, instance: str, ttl_s: float) -> None:
        self.both(lambda store: store.lead("chore", instance, ttl_s))

    # Shelves and counters

    @rule(writes=st.lists(item_writes, max_size=3))
    def put(self, writes: list[RecordWrite]) -> None:
        done = self.both(lambda store: store.put_records(writes))
        assert done == [self.model.put(write, self.clock.elapsed()) for write in writes]

    @rule(n=st.integers(0, 4), bucket=st.sampled_from("xy"))
    def take(self, n: int, bucket: str) -> None:
        taken = self.both(lambda store: store.take_tokens(bucket, n, 5, 40.0))
        assert taken.ok == self.model.take(bucket, n, 5, 40.0, self.clock.elapsed())

    @rule(crash=some)
    def restart(self, crash: bool) -> None:
        self.start_anew(crash)

    def start_anew(self, crash: bool) -> None:
        """Other stores on the same place; what is only kept in memory is gone."""
        self.clock.move(0.001)
        old = self.stores
        if crash:
            # Nobody says goodbye: the next store finds the files as they are at this moment.
            there = self.folder / self.name()
            there.mkdir()
            for name in (self.path.name, f"{self.path.name}-wal"):
                shutil.copy(self.path.with_name(name), there / name)
            self.path = there / self.path.name
            self.stores = self._open()
        for store in old:
            self.runner.run(store.stop())
        if not crash:
            self.stores = self._open()
        self.forgotten = {
            job.id for job in self.model.jobs.values() if job.status.terminal and not job.body_hash
        }
        self.model.restart()

    # What must be true at any time

    @invariant()
    def both_show_the_same_and_it_is_what_the_model_knows(self) -> None:
        model = self.model
        job_ids = [*model.jobs, "unknown"]
        seen = self.both(lambda store: picture(store, job_ids))
        self.both(lambda store: store.workers(lapsed_only=True))
        assert seen["jobs"] == seen["got"] == [*model.jobs.values(), None]
        assert seen["tasks"] == {job_id: model.tasks_of(job_id) for job_id in job_ids}
        assert set(seen["ready"]) == model.ready(self.clock.elapsed())
        assert len(seen["ready"]) == len(set(seen["ready"]))
        assert seen["deadlines"] == model.due()
        assert seen["next_due"] == min((due.at for due in model.due()), default=None)
        assert seen["messages"] == list(model.messages.values())
        assert seen["lanes"] == model.lane_statuses()
        held = {worker: {task.id for task in tasks} for worker, tasks in seen["held"].items()}
        assert held == model.held()
        self._check_outbox(seen)
        self._check_shelves()

    def _check_outbox(self, seen: dict[str, Any]) -> None:
        entries = [entry for entry in seen["outbox"] if entry.number > self.pruned]
        told = [
            (entry.job_id, entry.first_seq, tuple(event.message for event in entry.events))
            for entry in entries
        ]
        assert told == self.model.told[self.pruned_entries :]
        numbers = [entry.number for entry in entries]
        assert numbers == sorted(set(numbers))

    def _check_shelves(self) -> None:
        now, elapsed = self.clock.now(), self.clock.elapsed()

        async def look(store: StorageBackend) -> list[Any]:
            shelves = [await store.records(collection, limit=ALL) for collection in SHELVES]
            ripe = [await store.due_records(collection, now, ALL) for collection in SHELVES]
            return [shelves, ripe, [await store.quota_used(counter) for counter in COUNTERS]]

        shelves = [self.model.collection(collection, elapsed) for collection in SHELVES]
        ripe = [ripe_of(items, now) for items in shelves]
        used = [self.model.used(counter, elapsed) for counter in COUNTERS]
        assert self.both(look) == [shelves, ripe, used]


LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
StorageMachine.TestCase.settings = settings(
    max_examples=2000 if LONG else 60,
    stateful_step_count=80 if LONG else 40,
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestStorageMachine = pytest.mark.timeout(3600 if LONG else 60)(StorageMachine.TestCase)
