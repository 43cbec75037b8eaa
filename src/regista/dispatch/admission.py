"""Admission: may a task be offered now? The one point where limits, rates and circuit breakers are asked."""

from typing import Protocol

from ..model import QueueKey, Task


class Admission(Protocol):
    """What keeps tasks from being offered although a worker is free. All methods are synchronous and cheap.

    Waiting tasks are looked at every two seconds, and at once after `Dispatcher.wake`.
    """

    def allows(self, task: Task) -> bool:
        """A new task may be offered in the commit that creates it. Else it waits in its queue."""
        ...

    def room(self, queue_key: QueueKey, wanted: int) -> int:
        """How many waiting tasks of this queue may be offered now; at most `wanted`."""
        ...


class AdmitAll:
    """Everything is allowed."""

    def allows(self, task: Task) -> bool:
        """Always."""
        return True

    def room(self, queue_key: QueueKey, wanted: int) -> int:
        """As many as wanted."""
        return wanted
