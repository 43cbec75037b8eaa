"""Step: what one decision does to a job. Steps add up; the sum becomes one `Change`."""

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from ..clock import add_seconds
from ..model import Change, ChildJob, Event, Job, JobMessage, Quota, RetryPolicy, TaskWrite
from ..model.task import DEFAULT_RETRY
from .graph import Graph
from .notices import notices


class Rules(Struct, frozen=True, kw_only=True, gc=False):
    """The settings that the machine obeys."""

    #: How a handler that raised is run again: `JOB_MAX_RETRIES` retries after the first run.
    handler_retry: RetryPolicy = RetryPolicy()
    #: How a task is run again when its dispatch names no policy.
    task_retry: RetryPolicy = DEFAULT_RETRY
    #: `WORKER_TIMEOUT_SECONDS`: bounds one attempt.
    attempt_timeout_s: float = 300.0
    #: How long a worker may take to confirm a cancel.
    cancel_grace_s: float = 30.0
    #: How deep `run_blueprint` may nest; a blueprint that runs itself for ever stops here.
    max_depth: int = 16

    def __post_init__(self) -> None:
        if self.task_retry == DEFAULT_RETRY:  # then no task has to carry it
            force_setattr(self, "task_retry", DEFAULT_RETRY)


class Scene(Struct, frozen=True, kw_only=True, gc=False):
    """What the machine may know besides the job: the time, the graphs, the rules and one throw of chance."""

    now: datetime
    #: The graph of the job's own version; None where this instance has not loaded it.
    graph: Graph | None
    #: The newest graph of a blueprint by its name.
    find: Callable[[str], Graph | None]
    rules: Rules = Rules()
    #: Between 0 and 1; spreads retries.
    chance: float = 0.5


class Step(Struct, frozen=True, kw_only=True, gc=False):
    """A job as it shall be, and everything that must be written with it."""

    job: Job
    tasks: tuple[TaskWrite, ...] = ()
    drop_tasks: bool = False
    opens_branches: int | None = None
    closes_branches: int = 0
    children: tuple[ChildJob, ...] = ()
    messages: tuple[JobMessage, ...] = ()
    events: tuple[Event, ...] = ()

    def then(self, add_seconds: "Step") -> "Step":
        """Both, as one: `later` was decided on the job that this step left."""
        return Step(
            job=add_seconds.job,
            tasks=self.tasks + add_seconds.tasks,
            drop_tasks=self.drop_tasks or add_seconds.drop_tasks,
            opens_branches=self.opens_branches
            if add_seconds.opens_branches is None
            else add_seconds.opens_branches,
            closes_branches=self.closes_branches + add_seconds.closes_branches,
            children=self.children + add_seconds.children,
            messages=self.messages + add_seconds.messages,
            events=self.events + add_seconds.events,
        )

    def change(
        self,
        base: Job | None,
        token: str,
        *,
        tasks: tuple[TaskWrite, ...] | None = None,
        consumes_message: str | None = None,
        quota: Quota | None = None,
        keep_lease_s: float | None = None,
    ) -> Change:
        """The write that takes the stored job from `base` (None: from nothing) to this one.

        `tasks` stand in for the step's own: the same ones, with what was found for them meanwhile.
        """
        revision = 1 if base is None else base.revision + 1
        job = replace(self.job, revision=revision, token=token)
        return Change(
            job_id=job.id,
            token=token,
            job=job,
            expected=None if base is None else base.revision,
            tasks=self.tasks if tasks is None else tasks,
            drop_tasks=self.drop_tasks,
            opens_branches=self.opens_branches,
            closes_branches=self.closes_branches,
            children=self.children,
            messages=self.messages,
            consumes_message=consumes_message,
            events=self.events,
            # In the same write: what is told outside is neither lost nor told of what never happened.
            records=() if job.webhook_url is None else notices(job, self.events),
            quota=quota,
            keep_lease_s=keep_lease_s,
        )


def pause_s(policy: RetryPolicy, failures: int, chance: float) -> float:
    """Seconds to wait after the nth failure: first, first x factor, … up to the cap, spread by chance."""
    exponent = min(max(failures - 1, 0), 64)
    pause = min(policy.first_s * policy.factor**exponent, policy.cap_s)
    return pause * (1 + policy.jitter * (2 * chance - 1))


def retry_at(now: datetime, policy: RetryPolicy, failures: int, chance: float) -> datetime:
    """The instant of the next try."""
    return add_seconds(now, pause_s(policy, failures, chance))
