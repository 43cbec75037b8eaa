"""What the storage suite plays with: a clock, records whose further fields do not matter, and eyes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from ....clock import Clock
from ....model import (
    OPEN_STATES,
    AttemptState,
    AwaitBranches,
    AwaitHuman,
    AwaitTask,
    AwaitTimer,
    Change,
    CommitStatus,
    Event,
    EventType,
    Job,
    JobMessage,
    JobMessageKind,
    JobStatus,
    Task,
    TaskResult,
    TaskWrite,
    Worker,
)
from ....storage.base import Hint, StorageBackend
from ... import clock as clocks

#: Stands still until a test moves it.
ManualClock = clocks.Clock
StorageFactory = Callable[[Clock], StorageBackend]
Reopen = Callable[[], Awaitable[StorageBackend]]

S = TypeVar("S", bound=StorageBackend)

START = datetime(2026, 3, 1, 12, 0, 0, 250000, tzinfo=UTC)
FOREVER = datetime(9000, 1, 1, tzinfo=UTC)
V1, V2 = ("film", "v1"), ("film", "v2")
ALL = 10_000

APPLIED, REPEATED, STALE = CommitStatus.APPLIED, CommitStatus.REPEATED, CommitStatus.STALE
MISSING, EXISTS = CommitStatus.MISSING, CommitStatus.EXISTS
QUEUED, OFFERED, STARTED, CLOSED = AttemptState
_tokens = count(1)


@asynccontextmanager
async def running(storage: S) -> AsyncIterator[S]:
    """The store, started, and stopped in any case."""
    await storage.start()
    try:
        yield storage
    finally:
        await storage.stop()


def on_a_clock(
    test: Callable[[Any, StorageBackend, ManualClock], Coroutine[Any, Any, None]],
) -> Callable[[Any, StorageFactory], None]:
    """Run an async test with a started store and the clock that it lives by."""

    def run(self: Any, open_storage: StorageFactory) -> None:
        async def body() -> None:
            clock = ManualClock(START)
            async with running(open_storage(clock)) as storage:
                await test(self, storage, clock)

        asyncio.run(body())

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return run


class Leaver(Protocol):
    """Who knows how to be done with a store, and where the next one is."""

    async def leave(
        self, storage: StorageBackend, open_storage: StorageFactory, clock: Clock
    ) -> StorageBackend:
        """Be done with `storage` and return the next one, not started yet."""
        ...


def over_a_restart(
    test: Callable[[Any, StorageBackend, ManualClock, Reopen], Coroutine[Any, Any, None]],
) -> Callable[["Leaver", StorageFactory], None]:
    """Run an async test that can have its store closed and another opened on the same place."""

    def run(self: "Leaver", open_storage: StorageFactory) -> None:
        async def body() -> None:
            clock = ManualClock(START)
            async with AsyncExitStack() as stack:
                last = await stack.enter_async_context(running(open_storage(clock)))

                async def reopen() -> StorageBackend:
                    nonlocal last
                    last = await stack.enter_async_context(
                        running(await self.leave(last, open_storage, clock))
                    )
                    return last

                await test(self, last, clock, reopen)

        asyncio.run(body())

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return run


# Records whose further fields do not matter


def make_job(job_id: str = "job-1", **fields: Any) -> Job:
    """A new job, runnable at once."""
    defaults: dict[str, Any] = {
        "blueprint": V1[0],
        "version": V1[1],
        "state": "start",
        "created_at": START,
        "updated_at": START,
        "revision": 1,
        "token": f"token-{next(_tokens)}",
    }
    return Job(id=job_id, **{**defaults, **fields})


def next_of(job: Job, **fields: Any) -> Job:
    """The job as a decider leaves it: the next revision under a token of its own."""
    return replace(job, **{"revision": job.revision + 1, "token": f"token-{next(_tokens)}", **fields})


def write(job: Job, **parts: Any) -> Change:
    """The change that stores this job, which is new or the next of what is stored."""
    expected = None if job.revision == 1 else job.revision - 1
    return Change(job_id=job.id, token=job.token, job=job, expected=expected, **parts)


def only(job_id: str, *tasks: TaskWrite, **parts: Any) -> Change:
    """A change of tasks alone, without the job's revision."""
    return Change(job_id=job_id, token=f"token-{next(_tokens)}", tasks=tasks, **parts)


def make_task(job_id: str = "job-1", index: int = 0, **fields: Any) -> Task:
    """A task that waits for a worker."""
    defaults: dict[str, Any] = {"id": f"{job_id}_1_{index}", "type": "encode", "queued_at": START}
    return Task(job_id=job_id, index=index, **{**defaults, **fields})


def fenced(task: Task, attempt: int = 1, states: tuple[AttemptState, ...] = OPEN_STATES) -> TaskWrite:
    """The task as it shall be, behind its fence."""
    return TaskWrite(task, attempt, states)


def closed(task: Task, **fields: Any) -> Task:
    """The task with an accepted result."""
    result = TaskResult(task_id=task.attempt_id, job_id=task.job_id, data={"of": task.index})
    return replace(task, **{"state": CLOSED, "result": result, **fields})


def event(message: str = "", **fields: Any) -> Event:
    """Something that happened."""
    return Event(type=EventType.STATE_STARTED, at=START, message=message, **fields)


def message(message_id: str, to_job: str = "job-1", from_job: str = "job-2", **fields: Any) -> JobMessage:
    """A word between jobs."""
    return JobMessage(message_id, JobMessageKind.CHILD_ENDED, to_job, from_job, **fields)


def make_worker(worker_id: str = "w1", skills: Sequence[str] = ("encode",), **fields: Any) -> Worker:
    """Somebody to do the work."""
    return Worker(id=worker_id, skills=tuple(skills), **fields)


def timer(seconds: float) -> dict[str, Any]:
    """The fields of a job that waits for so long from the start."""
    until = START + timedelta(seconds=seconds)
    return {"status": JobStatus.WAITING_FOR_TIMER, "wait": AwaitTimer(until, "next")}


def at(seconds: float) -> datetime:
    """So many seconds after the start."""
    return START + timedelta(seconds=seconds)


#: Waits for a person: nothing but a decision moves it.
PARKED: dict[str, Any] = {"status": JobStatus.WAITING_FOR_HUMAN, "wait": AwaitHuman("well?", {"yes": "go"})}
FINISHED: dict[str, Any] = {"status": JobStatus.FINISHED, "finished_at": START, "wait": None}


# What a test does, and what it sees


async def commit(storage: StorageBackend, *changes: Change, instance: str = "me") -> list[CommitStatus]:
    """Commit, and how each went."""
    return [outcome.kind for outcome in await storage.commit(changes, instance)]


async def create(storage: StorageBackend, *jobs: Job, **parts: Any) -> None:
    """Store new jobs."""
    assert await commit(storage, *(write(job, **parts) for job in jobs)) == [APPLIED] * len(jobs)


async def dispatch(storage: StorageBackend, *tasks: Task, **parts: Any) -> Job:
    """Store a new job that waits for these tasks of its."""
    job = make_job(tasks[0].job_id, status=JobStatus.WAITING_FOR_WORKER, wait=AwaitTask(tasks[0].id))
    await create(storage, job, tasks=tuple(TaskWrite(task) for task in tasks), **parts)
    return job


async def fan_out(storage: StorageBackend, branches: int, job_id: str = "job-1", **fields: Any) -> Job:
    """Store a new job that waits for so many branches."""
    wait = AwaitBranches("gather", branches)
    job = make_job(job_id, **{"status": JobStatus.WAITING_FOR_PARALLEL, "wait": wait, **fields})
    tasks = tuple(TaskWrite(make_task(job_id, index, branch=True)) for index in range(branches))
    await create(storage, job, tasks=tasks, opens_branches=branches)
    return job


def close_branch(index: int, job_id: str = "job-1") -> Change:
    """The end of one branch, on its own."""
    return only(job_id, fenced(closed(make_task(job_id, index, branch=True))), closes_branches=1)


async def claim(
    storage: StorageBackend,
    instance: str = "me",
    versions: Sequence[tuple[str, str]] = (V1,),
    limit: int = ALL,
    lease_s: float = 30,
) -> list[str]:
    """The ids of the jobs that `instance` gets."""
    return [job.id for job in await storage.claim_ready(instance, versions, limit, lease_s)]


async def offers(
    storage: StorageBackend, worker: Worker | None = None, limit: int = ALL, now: datetime = START
) -> list[str]:
    """The ids of the tasks that the worker gets."""
    return [task.id for task in await claim_tasks(storage, worker, limit, now)]


async def claim_tasks(
    storage: StorageBackend, worker: Worker | None = None, limit: int = ALL, now: datetime = START
) -> list[Task]:
    """The tasks that the worker gets from the lanes of its queues and skills."""
    worker = worker or make_worker()
    waiting = dict.fromkeys(status.queue_key for status in await storage.queue_status())
    lanes = [queue_key for queue_key in waiting if worker.serves(queue_key.queue, queue_key.type)]
    return (await storage.claim_tasks(worker, lanes, limit, now)).tasks


async def shown(storage: StorageBackend, job_id: str = "job-1") -> Job | None:
    """The job as clients see it."""
    (job,) = await storage.get([job_id])
    return job


async def job_of(storage: StorageBackend, job_id: str = "job-1") -> Job:
    """The newest record of a job that is there."""
    ((job,), _) = await storage.load([job_id])
    assert job is not None
    return job


async def task_of(storage: StorageBackend, task_id: str = "job-1_1_0") -> Task:
    """The newest record of a task that is there."""
    (_, (task,)) = await storage.load([], [task_id])
    assert task is not None
    return task


async def due(
    storage: StorageBackend, now: datetime = FOREVER, limit: int = ALL
) -> list[tuple[str, datetime]]:
    """The passed deadlines: whose, and when."""
    return [(due.id, due.at) for due in await storage.due(now, limit)]


async def told(storage: StorageBackend, job_id: str = "job-1") -> list[tuple[int, str | None]]:
    """The events of a job that are still in the outbox, by number."""
    return [(event.seq, event.message) for event in await storage.tail(job_id, 0)]


async def waiting_messages(storage: StorageBackend) -> list[str]:
    """The ids of the messages that nobody acted on yet."""
    return [message.id for message in await storage.messages(ALL)]


async def picture(storage: StorageBackend, job_ids: Sequence[str]) -> dict[str, Any]:
    """All that can be seen of these jobs without changing anything."""
    jobs = (await storage.load(job_ids))[0]
    return {
        "jobs": jobs,
        "got": await storage.get(job_ids),
        "tasks": {job_id: await storage.tasks_of(job_id) for job_id in job_ids},
        "held": {worker: await storage.held_by(worker) for worker in await storage.holders()},
        "ready": [job.id for job in await storage.stranded([], ALL)],
        "deadlines": await storage.due(FOREVER, ALL),
        "next_due": await storage.next_due(),
        "messages": await storage.messages(ALL),
        "outbox": (await storage.outbox(0, ALL)).entries,
        "tails": {job_id: await storage.tail(job_id, 0) for job_id in job_ids},
        "workers": await storage.workers(),
        "lanes": await storage.queue_status(),
    }


async def hears(hints: list[Hint], *wanted: Hint) -> bool:
    """Whether these hints arrive within two seconds; a backend may take its time."""
    for _ in range(1000):
        if all(hint in hints for hint in wanted):
            return True
        await asyncio.sleep(0.002)
    return False
