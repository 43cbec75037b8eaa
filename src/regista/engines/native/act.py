"""Act: one job's way through a turn of the executor."""

import asyncio

from msgspec import Struct

from ...machine.step import Step
from ...machine.task_results import TaskStep
from ...model import CommitStatus, Job, Quota, ResultVerdict, Task, TaskResult


class Roll(Struct, eq=False):
    """Jobs that were submitted together: one future tells of all of them, in their order."""

    #: What each place is answered with; until then the job that was wished for stands there.
    answers: list[Job | CommitStatus]
    left: int
    done: asyncio.Future[list[Job | CommitStatus]]

    def answer(self, place: int, job: Job | CommitStatus) -> None:
        """One of them; the last one answers for all."""
        self.answers[place] = job
        self.left -= 1
        if self.left == 0 and not self.done.done():
            self.done.set_result(self.answers)


class Act(Struct, eq=False):
    """Collects what a turn does to one job until it is committed.

    `base` is the record as it is stored (None: it is not yet), `job` the one that the steps so far
    lead to. `step` is their sum; the commit goes from `base` to `job` in one write.
    """

    base: Job | None = None
    job: Job | None = None
    step: Step | None = None
    task_step: TaskStep | None = None
    #: The branches that an aggregator sees; None outside of one.
    tasks: list[Task] | None = None
    result: TaskResult | None = None
    #: Answered after the commit: the submitter's job, or the worker's verdict.
    born: asyncio.Future[Job | CommitStatus] | None = None
    #: The same for one of many, and which of them it is.
    roll: Roll | None = None
    place: int = 0
    #: What a new job counts for.
    quota: Quota | None = None
    told: asyncio.Future[ResultVerdict] | None = None
    #: Tasks that were matched with a worker before the commit.
    offers: tuple[Task, ...] = ()
    #: Branches that end with a sibling's failure: their workers are told after the commit.
    called_off: tuple[Task, ...] = ()
    settled: bool = False

    def add(self, step: Step) -> None:
        """One more decision."""
        self.step = step if self.step is None else self.step.then(step)
        self.job = step.job

    def committed(self, job: Job) -> None:
        """The steps so far are in the store: the next commit starts from there."""
        self.base = self.job = job
        self.step = None
        self.offers = ()

    def fail(self, error: BaseException) -> None:
        """Whoever waits for this act gets the error."""
        for future in (self.born, self.told, None if self.roll is None else self.roll.done):
            if future is not None and not future.done():
                future.set_exception(error)

    def answer(self, verdict: ResultVerdict) -> None:
        """Tell the worker."""
        if self.told is not None and not self.told.done():
            self.told.set_result(verdict)

    def welcome(self, job: Job | CommitStatus) -> None:
        """Tell the submitter: the job, or why there is none."""
        if self.roll is not None:
            self.roll.answer(self.place, job)
        elif self.born is not None and not self.born.done():
            self.born.set_result(job)
