from datetime import UTC, datetime, timedelta
from typing import Any

from regista.clock import SystemClock
from regista.errors import StorageUnavailable
from regista.history.memory import MemoryHistory
from regista.model import AttemptState, Change, Event, EventType, Job, Task, TaskWrite, Worker
from regista.observe.sampler import StoreSampler
from regista.storage.memory import MemoryStorage

NOW = datetime.now(UTC)


class Notes:
    """Takes what is told."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def __call__(self, **said: Any) -> None:
        self.said.append(said)


def waiting_task(number: int, queue: str, age_s: float) -> Change:
    job_id = f"j{number}"
    job = Job(
        id=job_id, blueprint="b", version="v", state="s", created_at=NOW, updated_at=NOW, client=f"c{number}"
    )
    queued = NOW - timedelta(seconds=age_s)
    task = Task(
        id=f"{job_id}_1_0",
        job_id=job_id,
        type="work",
        queue=queue,
        client=f"c{number}",
        state=AttemptState.QUEUED,
        queued_at=queued,
    )
    created = Event(type=EventType.JOB_CREATED, at=NOW - timedelta(seconds=4))
    return Change(job_id=job_id, token=f"t{number}", job=job, tasks=(TaskWrite(task),), events=(created,))


class Away(MemoryStorage):
    async def queue_status(self) -> Any:
        raise StorageUnavailable("away")


class Silent(MemoryHistory):
    async def cursor(self) -> int:
        raise ConnectionError("no")


async def test_a_look_finds_queues_workers_and_what_history_lacks() -> None:
    storage, notes = MemoryStorage(SystemClock()), Notes()
    await storage.start()
    changes = [waiting_task(1, "a", 60), waiting_task(2, "a", 90), waiting_task(3, "b", 5)]
    await storage.commit(changes, "one")
    await storage.register(Worker(id="w", skills=("work",)), 30)
    await storage.register(Worker(id="gone", skills=("work",)), 0)

    await StoreSampler(storage, MemoryHistory(), notes).run_once(NOW)

    (said,) = notes.said
    assert said["queues"] == {"a": (2, 90.0), "b": (1, 5.0)}
    assert (said["workers"], said["store_up"], said["history_up"]) == (1, True, True)
    assert (said["history_entries"], said["history_lag_s"]) == (3, 4.0)
    await storage.stop()


async def test_a_history_that_is_away_is_told_of_and_its_lag_too() -> None:
    storage, notes = MemoryStorage(SystemClock()), Notes()
    await storage.start()
    await storage.commit([waiting_task(1, "a", 1)], "one")

    await StoreSampler(storage, Silent(), notes).run_once(NOW)

    assert (notes.said[0]["history_up"], notes.said[0]["history_entries"]) == (False, 1)
    await storage.stop()


async def test_no_history_is_no_trouble() -> None:
    storage, notes = MemoryStorage(SystemClock()), Notes()
    await storage.start()

    await StoreSampler(storage, None, notes).run_once(NOW)

    assert (notes.said[0]["history_up"], notes.said[0]["history_lag_s"]) == (None, 0.0)
    await storage.stop()


async def test_a_store_that_is_away_is_a_finding() -> None:
    storage, notes = Away(SystemClock()), Notes()
    await storage.start()

    await StoreSampler(storage, None, notes).run_once(NOW)

    assert notes.said == [{"store_up": False}]
    await storage.stop()
