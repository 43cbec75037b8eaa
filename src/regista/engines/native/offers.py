"""TaskOffers: offers the new tasks of a turn to workers, before and after its commit."""

from msgspec.structs import replace

from ...clock import Clock
from ...dispatch.dispatcher import Dispatcher
from ...machine.step import Step
from ...model import TaskWrite
from .work_item import WorkItem


class TaskOffers:
    """Reserves slots before the commit, and sends the tasks or frees the slots after it."""

    def __init__(self, dispatcher: Dispatcher, clock: Clock) -> None:
        self._dispatcher = dispatcher
        self._clock = clock

    def match(self, item: WorkItem, step: Step) -> None:
        """Offers the step's new tasks to free workers, in the write that creates the tasks."""
        item.step = replace(step, tasks=tuple(self._offer(item, write) for write in step.tasks))

    def _offer(self, item: WorkItem, write: TaskWrite) -> TaskWrite:
        task = write.task
        if write.attempt or not task.waiting:
            return write  # not a new task
        # It was queued in this turn: that is now.
        offered = self._dispatcher.reserve(task, task.queued_at or self._clock.now())
        if offered is not None:
            item.offers += (offered,)
            return TaskWrite(offered)
        instance = self._dispatcher.peer_for(task)
        return TaskWrite(task, notify_instance=instance) if instance else write

    def send(self, item: WorkItem, not_offered: tuple[str, ...]) -> None:
        """Sends the tasks that were stored as offered. The others wait in their queue for another worker."""
        for task in item.offers:
            if task.id in not_offered:
                self._dispatcher.release(task.worker_id, task.attempt_id)
        if item.offers:
            self._dispatcher.deliver([task for task in item.offers if task.id not in not_offered])

    def release(self, item: WorkItem) -> None:
        """Frees the slots. If the offers were stored after all, the workers' heartbeats lack them (FENCES 10)."""
        for task in item.offers:
            self._dispatcher.release(task.worker_id, task.attempt_id)
