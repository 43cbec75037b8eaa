"""StorageView: lets an audit look into the hot state of a store."""

from collections.abc import Iterator

from ..model import Job, QueueKey, Task
from ..storage.base import DueKind
from ..storage.codec import decode_job
from ..storage.memory import MemoryStorage


class StorageView:
    """Read-only, and only for tests: no promise of the contract shows this much."""

    def __init__(self, store: MemoryStorage) -> None:
        self._state = store._state

    def live_jobs(self) -> Iterator[tuple[Job, int, bool]]:
        state = self._state
        for job_id, cell in list(state._jobs.items()):
            queued = job_id in state.leases or state.ready.has(cell.version, job_id)
            yield decode_job(cell.body), cell.open, queued

    def tasks_of(self, job_id: str) -> list[Task]:
        return self._state.tasks_of(job_id)

    def in_lane(self, task_id: str) -> bool:
        return any(task_id in queue for queue in self._state.tasks.queues)

    def lanes(self) -> list[QueueKey]:
        """Where something waits, in order."""
        return list(dict.fromkeys(status.queue_key for status in self._state.tasks.queues.status()))

    def has_deadline(self, id: str) -> bool:
        at = self._state.deadlines._at
        return (DueKind.JOB, id) in at or (DueKind.TASK, id) in at

    def knows_job(self, job_id: str) -> bool:
        return job_id in self._state._jobs

    def has_message(self, message_id: str) -> bool:
        return message_id in self._state._messages
