"""JobRepository: every value whole, wherever it is stored; telemetry of commits and claims."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from regista import Job, JobStatus, MemoryStorage, Task, TaskResult
from regista.clock import SystemClock
from regista.engines.base import NoObserver
from regista.engines.native.repository import JobRepository
from regista.errors import StorageUnavailable
from regista.model import (
    AttemptState,
    Change,
    ChildJob,
    CommitOutcome,
    Event,
    EventType,
    JobMessage,
    JobMessageKind,
    TaskWrite,
    Worker,
)
from regista.observe.commit_metrics import CommitMetrics
from regista.observe.engine_observer import EngineTelemetry
from regista.observe.metrics import Metrics
from regista.payloads.base import MARK, FetchFailure, broken
from regista.payloads.memory import MemoryPayloads
from regista.payloads.offload import Offloader
from regista.payloads.records import RecordOffloader
from regista.testing.conformance.storage.kit import shown
from tests.repository_storage import RepositoryStorage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BIG = "x" * 1000
VERY_BIG = "y" * 2_000_000


def a_job(**fields: Any) -> Job:
    given = {"id": "j1", "blueprint": "b", "version": "v", "state": "s", "revision": 1, **fields}
    return Job(created_at=NOW, updated_at=NOW, **given)


async def kept(store: MemoryPayloads | None = None) -> tuple[JobRepository, MemoryStorage]:
    storage = MemoryStorage(SystemClock())
    await storage.start()
    return repository(storage, store or MemoryPayloads()), storage


def repository(storage: MemoryStorage, payloads: MemoryPayloads) -> JobRepository:
    return RepositoryStorage(storage, payloads, 100, SystemClock()).repository


async def seen_by_clients(records: JobRepository, job_id: str) -> Job | None:
    (job,) = await records.get([job_id])
    return job


async def write(records: JobRepository, job: Job, **change: Any) -> None:
    (outcome,) = await records.commit([Change(job_id=job.id, token="t", job=job, **change)], "i")
    assert outcome.ok


async def test_a_job_with_large_values_is_whole_for_deciders_and_small_in_the_store() -> None:
    records, storage = await kept()
    job = a_job(input={"a": BIG}, data={"b": [BIG], "c": 1}, result=BIG)

    await write(records, job=job)

    stored = await shown(storage, "j1")
    assert len(repr(stored)) < 2500
    ((loaded,), _) = await records.load(["j1"])
    assert loaded is not None
    assert (loaded.input, loaded.data) == (job.input, job.data)
    (claimed,) = await records.claim_ready("i", [("b", "v")], 10, 30.0)
    assert claimed.input == job.input
    seen = await seen_by_clients(records, "j1")
    assert seen is not None
    assert (seen.input, seen.data, seen.result) == (job.input, job.data, BIG)


async def test_what_is_small_passes_untouched() -> None:
    class Seen(MemoryStorage):
        changes: Any = None

        async def commit(self, changes: Any, instance: str) -> Any:
            self.changes = changes
            return await super().commit(changes, instance)

    storage = Seen(SystemClock())
    await storage.start()
    records = repository(storage, MemoryPayloads())
    changes = [Change(job_id="j1", token="t", job=a_job(input={"a": "small"}, result=5))]

    await records.commit(changes, "i")

    assert storage.changes is changes


async def test_a_job_that_is_written_again_keeps_its_references() -> None:
    store = MemoryPayloads()
    records, _ = await kept(store)
    await write(records, job=a_job(input={"a": BIG}, result={"r": BIG + "!"}))
    ((loaded,), _) = await records.load(["j1"])
    assert loaded is not None

    again = replace(loaded, revision=2, status=JobStatus.FINISHED)
    (outcome,) = await records.commit([Change(job_id="j1", token="u", job=again, expected=1)], "i")

    assert outcome.ok
    assert len([each async for each in store.files("records")]) == 2
    seen = await seen_by_clients(records, "j1")
    assert seen is not None
    assert (seen.input, seen.result) == ({"a": BIG}, {"r": BIG + "!"})


async def test_tasks_children_messages_and_events_are_kept_too() -> None:
    records, storage = await kept()
    params = {"p": BIG}
    task = Task(
        id="j1_1_0",
        job_id="j1",
        type="work",
        queued_at=NOW,
        params=params,
        result=TaskResult(task_id="j1_1_0-1", job_id="j1", data={"d": BIG}),
    )
    child = a_job(id="c1", parent_id="j1", input={"i": BIG})
    message = JobMessage(
        "m1", JobMessageKind.CHILD_ENDED, "p1", "j1", {"status": "finished", "result": {"r": BIG}}
    )
    event = Event(type=EventType.STATE_STARTED, at=NOW, snapshot={"s": BIG})

    await write(
        records,
        job=a_job(result={"r": BIG}),
        tasks=(TaskWrite(task),),
        children=(ChildJob(child, ()),),
        messages=(message,),
        events=(event,),
    )

    (raw,) = await storage.tasks_of("j1")
    assert MARK in raw.params
    (whole,) = await records.tasks_of("j1")
    assert (whole.params, whole.result and whole.result.data) == (params, {"d": BIG})
    ((born,), (loaded,)) = await records.load(["c1"], ["j1_1_0"])
    assert born is not None
    assert born.input == {"i": BIG}
    assert loaded is not None
    assert loaded.params == params
    (told,) = await records.messages(10)
    assert told.body["result"] == {"r": BIG}
    (entry,) = [each for each in (await storage.outbox(0, 10)).entries if each.job_id == "j1"]
    assert entry.events[0].snapshot is not None
    assert entry.events[0].snapshot["s"]["$offloaded"]["size"] > 1000


async def test_a_task_whose_params_are_broken_is_given_to_nobody() -> None:
    store = MemoryPayloads()
    records, storage = await kept(store)
    tasks = [
        Task(id=f"j1_1_{n}", job_id="j1", type="work", index=n, queued_at=NOW, params={"p": BIG + str(n)})
        for n in range(2)
    ]
    await write(records, job=a_job(), tasks=tuple(TaskWrite(task) for task in tasks))
    hurt = sorted([each.name async for each in store.files("records")])[0]
    await store.put(hurt, b"something else")
    told: list[tuple[str, FetchFailure]] = []
    records = RepositoryStorage(
        storage,
        store,
        100,
        SystemClock(),
        on_broken_payload=lambda task, why: told.append((task.id, why)),
    ).repository
    worker = Worker(id="w", skills=("work",), session=1)

    given, _ = await records.claim_tasks(worker, [tasks[0].queue_key], 10, NOW)

    assert len(given) == 1
    ((broken_id, why),) = told
    assert {given[0].id, broken_id} == {"j1_1_0", "j1_1_1"}
    assert why.code == "integrity_error"


async def test_a_claim_goes_on_behind_tasks_whose_params_are_broken() -> None:
    store = MemoryPayloads()
    records, storage = await kept(store)
    tasks = [
        Task(id=f"j1_1_{n}", job_id="j1", type="work", index=n, queued_at=NOW, params=params)
        for n, params in enumerate([{"p": BIG}, {"p": BIG + "2"}, {}])
    ]
    await write(records, job=a_job(), tasks=tuple(TaskWrite(task) for task in tasks))
    for each in [each async for each in store.files("records")]:
        await store.put(each.name, b"something else")
    records = repository(storage, store)

    claim = await records.claim_tasks(Worker(id="w", skills=("work",)), [tasks[0].queue_key], 1, NOW)

    assert ([task.id for task in claim.tasks], claim.exhausted) == (["j1_1_2"], False)


async def test_very_large_values_are_shown_by_size_and_had_by_checksum() -> None:
    storage = MemoryStorage(SystemClock())
    await storage.start()
    both = RepositoryStorage(storage, MemoryPayloads(), 100, SystemClock())
    records, offloader = both.repository, both.offloader
    await write(records, job=a_job(input={"small": BIG, "large": VERY_BIG}))

    seen = await seen_by_clients(records, "j1")
    stored = await shown(storage, "j1")

    assert seen is not None
    assert stored is not None
    reference = seen.input["large"]["$offloaded"]
    assert await offloader.value(stored, reference["sha256"]) == VERY_BIG
    assert (await offloader.complete(stored)).input == {"small": BIG, "large": VERY_BIG}
    assert offloader.at_a_glance(stored).input["small"]["$offloaded"]["size"] > 1000


def test_the_size_of_a_small_record_costs_next_to_nothing() -> None:
    """Measured against an encode of the same record, which every commit pays anyway."""
    import timeit

    import msgspec

    records = RecordOffloader(Offloader(MemoryPayloads(), 100, SystemClock()))
    change = Change(
        job_id="j1", token="t", job=a_job(input={"name": "Ada", "n": 5}, data={"greeting": "Hello"})
    )
    encode = msgspec.msgpack.Encoder().encode

    looked = min(timeit.repeat(lambda: records._heavy(change), number=2000, repeat=7))
    written = min(timeit.repeat(lambda: encode(change.job), number=2000, repeat=7))

    assert looked < 10 * written


async def test_one_poisoned_record_does_not_keep_those_beside_it_from_being_read() -> None:
    """As an older version, or a hand in the database, may have left it."""

    class Odd(MemoryPayloads):
        async def get(self, path: str) -> bytes:
            raise ValueError(path)

    records, storage = await kept(Odd())
    forged = {MARK: {"whole": {"path": "records/j1/../x", "sha256": "../x", "size": 5}}}
    real = {MARK: {"whole": {"path": f"records/j2/{'a' * 64}", "sha256": "a" * 64, "size": 5}}}
    jobs = [a_job(data=forged), a_job(id="j2", data=real), a_job(id="j3", data={"n": 1})]
    told = JobMessage("m1", JobMessageKind.CHILD_ENDED, "p1", "j2", {"status": "finished", "result": real})
    changes = [Change(job_id=job.id, token=f"t{job.id}", job=job, messages=(told,)) for job in jobs[1:]]
    await storage.commit([Change(job_id="j1", token="t", job=jobs[0]), *changes[:1]], "i")
    await storage.commit([replace(changes[1], messages=())], "i")

    loaded, _ = await records.load(["j1", "j2", "j3"])
    claimed = await records.claim_ready("i", [("b", "v")], 10, 30.0)
    (message,) = await records.messages(10)

    assert sorted(job.id for job in claimed) == ["j1", "j2", "j3"]
    assert [broken(job.data) is not None for job in loaded if job] == [False, True, False]
    assert loaded[0] is not None
    assert loaded[0].data == forged
    assert message.body["result"] == {"$offloaded": {"size": 5, "sha256": "a" * 64}}
    for job_id in ("j1", "j2", "j3"):
        assert await seen_by_clients(records, job_id) is not None


async def test_what_a_refused_or_ended_job_had_put_away_is_written_again_for_the_next_of_its_name() -> None:
    """The quota refuses it, or it ends and is forgotten; its values are removed; then its key comes again."""
    store = MemoryPayloads()
    records, _ = await kept(store)
    job = a_job(input={"a": BIG})
    refused = Change(job_id="j1", token="t", job=replace(job, revision=2), expected=1)
    (outcome,) = await records.commit([refused], "i")
    assert not outcome.ok
    await store.clear("records")

    await write(records, job=job)
    assert len([each async for each in store.files("records")]) == 1

    ended = replace(job, revision=2, status=JobStatus.FINISHED)
    await records.commit([Change(job_id="j1", token="u", job=ended, expected=1)], "i")
    await store.clear("records")
    await records.commit([Change(job_id="j1", token="v", job=replace(ended, revision=3), expected=2)], "i")
    assert len([each async for each in store.files("records")]) == 1


async def test_a_task_that_has_begun_keeps_its_params_when_it_is_written_again() -> None:
    records, _ = await kept()
    task = Task(id="j1_1_0", job_id="j1", type="work", queued_at=NOW, params={"p": BIG})
    await write(records, job=a_job(), tasks=(TaskWrite(task),))
    worker = Worker(id="w", skills=("work",), session=1)
    ((offered,), _) = await records.claim_tasks(worker, [task.queue_key], 10, NOW)
    begun = replace(offered, state=AttemptState.STARTED)
    await records.commit([Change(job_id="j1", token="u", tasks=(TaskWrite(begun),))], "i")

    (held,) = await records.held_by("w")
    assert "p" not in held.params
    await records.commit([Change(job_id="j1", token="v", tasks=(TaskWrite(held),))], "i")

    (whole,) = await records.tasks_of("j1")
    assert whole.params == {"p": BIG}


class Away(MemoryStorage):
    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        raise StorageUnavailable("away")


class Seen(NoObserver):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def committed(self, changes: Sequence[Change], outcomes: Sequence[CommitOutcome], took_s: float) -> None:
        self.calls.append(("committed", len(changes), [outcome.ok for outcome in outcomes], took_s >= 0))

    def commit_failed(self) -> None:
        self.calls.append(("commit_failed",))

    def loaded(self, jobs: Sequence[Job | None]) -> None:
        self.calls.append(("loaded", len(jobs)))

    def claimed(self, worker: Worker, tasks: Sequence[Task]) -> None:
        self.calls.append(("claimed", worker.id, [task.id for task in tasks]))


async def test_the_observer_sees_commits_loads_and_claims() -> None:
    storage, observer = MemoryStorage(SystemClock()), Seen()
    await storage.start()
    records = JobRepository(storage, SystemClock(), observer=observer)
    task = Task(id="j1_1_0", job_id="j1", type="work", queued_at=NOW)

    await write(records, job=a_job(), tasks=(TaskWrite(task),))
    await records.load(["j1"])
    await records.claim_tasks(Worker(id="w", skills=("work",), session=1), [task.queue_key], 10, NOW)

    assert observer.calls == [
        ("committed", 1, [True], True),
        ("loaded", 1),
        ("claimed", "w", ["j1_1_0"]),
    ]


async def test_the_observer_is_told_of_a_commit_that_raises_and_the_caller_gets_the_error() -> None:
    observer = Seen()

    with pytest.raises(StorageUnavailable):
        await JobRepository(Away(SystemClock()), SystemClock(), observer=observer).commit([], "one")

    assert observer.calls == [("commit_failed",)]


async def test_a_commit_is_answered_though_counting_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    class FailingMetrics(CommitMetrics):
        def committed(self, *_: Any) -> None:
            raise ZeroDivisionError

    metrics, storage = Metrics(), MemoryStorage(SystemClock())
    await storage.start()
    commits = FailingMetrics(metrics, lambda _: None)
    observer = EngineTelemetry(metrics, commits, None, lambda _: None, SystemClock())
    records = JobRepository(storage, SystemClock(), observer=observer)

    await write(records, job=a_job())

    assert [record.name for record in caplog.records] == ["regista.observe"]
