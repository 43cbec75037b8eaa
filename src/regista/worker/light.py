"""Light: what a task's function says and traces while it runs is about its attempt."""

from contextvars import Token

from ..trace import ABOUT, About, Live, begin
from .context import Assignment


class Light:
    """Within it, log lines carry the ids of the attempt, and spans are below its own. A task or a thread that is
    begun within it keeps that.
    """

    __slots__ = ("_attempt_id", "_task_id", "_token", "_worker_id", "job_id", "span", "trace")

    def __init__(self, task: Assignment, worker_id: str) -> None:
        self.job_id = task.job_id
        self._task_id = task.id
        self._attempt_id = task.attempt_id
        self._worker_id = worker_id
        #: The trace that the attempt belongs to.
        self.trace = task.trace
        #: Open until the attempt has its result; None when nobody traces it.
        self.span = _span(task, self.trace, worker_id) if self.trace else None

    @property
    def ids(self) -> dict[str, str]:
        """What log lines carry."""
        return {
            "job_id": self.job_id,
            "task_id": self._task_id,
            "attempt_id": self._attempt_id,
            "worker_id": self._worker_id,
        }

    def __enter__(self) -> None:
        self._token: Token[About | None] = ABOUT.set(self)
        if self.span is not None:
            self.span.enter()

    def __exit__(self, *error: object) -> None:
        if self.span is not None:
            self.span.leave()
        ABOUT.reset(self._token)


def _span(task: Assignment, trace: dict[str, str], worker_id: str) -> Live | None:
    return begin(
        f"perform {task.type}",
        "consumer",
        trace,
        job_id=task.job_id,
        task_id=task.id,
        attempt_id=task.attempt_id,
        task=task.type,
        worker_id=worker_id,
        attempt=task.attempt,
    )
