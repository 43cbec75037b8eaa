"""WorkItem: one job's way through a turn of the executor."""

import asyncio
from typing import NamedTuple

from msgspec import Struct

from ...machine.step import Step
from ...machine.task_results import TaskStep
from ...model import Change, CommitStatus, Job, Quota, ResultVerdict, Task, TaskResult


class WorkItem(Struct, eq=False):
    """Collects what a turn does to one job until it is committed.

    `base` is the job as it is stored (None: not stored yet), `job` the job after the steps so far. `step` is the
    sum of those steps: the commit goes from `base` to `job` in one write.
    """

    base: Job | None = None
    job: Job | None = None
    step: Step | None = None
    #: Set instead of `step` when only tasks change.
    task_step: TaskStep | None = None
    #: The branches that an aggregator reads; None outside of one.
    branches: list[Task] | None = None
    result: TaskResult | None = None
    #: The stored task that the result is about.
    task: Task | None = None
    #: Resolved after the commit with the submitted job, or with the reason why it was not created.
    submitted: asyncio.Future[Job | CommitStatus] | None = None
    #: Counted with the creation of the job.
    quota: Quota | None = None
    #: Resolved after the commit that the task result causes.
    result_future: asyncio.Future[ResultVerdict] | None = None
    #: Tasks that were offered to workers before the commit.
    offers: tuple[Task, ...] = ()
    #: Tasks whose workers are told to stop after the commit.
    cancelled_tasks: tuple[Task, ...] = ()
    #: The turn has nothing more to do with it.
    done: bool = False

    def add(self, step: Step) -> None:
        """Adds one more decision."""
        self.step = step if self.step is None else self.step.then(step)
        self.job = step.job

    def committed(self, job: Job) -> None:
        """The steps so far are stored, and their callers answered. The next commit starts from `job`."""
        self.base = self.job = job
        self.step = self.result = self.submitted = self.result_future = None
        self.offers = ()

    def fail(self, error: BaseException) -> None:
        """Raises the error in the callers that wait for this item."""
        for future in (self.submitted, self.result_future):
            if future is not None and not future.done():
                future.set_exception(error)

    def answer_worker(self, verdict: ResultVerdict) -> None:
        """Answers the worker that sent the result."""
        if self.result_future is not None and not self.result_future.done():
            self.result_future.set_result(verdict)

    def answer_submitter(self, answer: Job | CommitStatus) -> None:
        """Answers the submitter: the job, or why it was not created."""
        if self.submitted is not None and not self.submitted.done():
            self.submitted.set_result(answer)


class PendingChange(NamedTuple):
    """A change to be committed, and the items that it belongs to."""

    change: Change
    items: list[WorkItem]


def merge_by_job(items: list[tuple[WorkItem, TaskStep]]) -> list[tuple[TaskStep, list[WorkItem]]]:
    """Merges the branches of one job that end in one turn into one step."""
    groups: dict[str, tuple[TaskStep, list[WorkItem]]] = {}
    singles: list[tuple[TaskStep, list[WorkItem]]] = []
    seen: set[str] = set()
    for item, step in items:
        task_id = step.tasks[0].task.id
        merged, group = groups.get(step.job_id, (step, []))
        if task_id in seen or merged.revision != step.revision:
            # The same result twice in one turn, or one of another revision: a change of its own. One of them is stale.
            singles.append((step, [item]))
            continue
        seen.add(task_id)
        groups[step.job_id] = (merged.then(step) if group else step, [*group, item])
    return [*groups.values(), *singles]
