"""Step: the effect of one decision on a job. Several steps of one turn add up to one `Change`."""

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from ..blueprint.graph import Graph
from ..clock import add_seconds
from ..model import Change, ChildJob, Event, Job, JobMessage, Quota, RetryPolicy, TaskWrite
from ..model.delivery import webhook_records
from ..model.task import DEFAULT_RETRY


class MachineSettings(Struct, frozen=True, kw_only=True, gc=False):
    """Settings of retries, timeouts and limits."""

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
        if self.task_retry == DEFAULT_RETRY:  # the same object is left out when a task is stored
            force_setattr(self, "task_retry", DEFAULT_RETRY)


class DecisionContext(Struct, frozen=True, kw_only=True, gc=False):
    """Everything besides the job that a decision depends on: the time, the graphs, the settings, one random number."""

    now: datetime
    #: The graph of the job's own version; None where this instance has not loaded it.
    graph: Graph | None
    #: The newest graph of a blueprint by its name.
    find_graph: Callable[[str], Graph | None]
    settings: MachineSettings = MachineSettings()
    #: Between 0 and 1; spreads retries.
    random: float = 0.5


class Step(Struct, frozen=True, kw_only=True, gc=False):
    """The job after a decision, and everything that must be written with it."""

    job: Job
    tasks: tuple[TaskWrite, ...] = ()
    drop_tasks: bool = False
    opens_branches: int | None = None
    closes_branches: int = 0
    children: tuple[ChildJob, ...] = ()
    messages: tuple[JobMessage, ...] = ()
    events: tuple[Event, ...] = ()

    def then(self, later: "Step") -> "Step":
        """Both steps as one. `later` was decided on the job of this step."""
        return Step(
            job=later.job,
            tasks=self.tasks + later.tasks,
            drop_tasks=self.drop_tasks or later.drop_tasks,
            opens_branches=self.opens_branches if later.opens_branches is None else later.opens_branches,
            closes_branches=self.closes_branches + later.closes_branches,
            children=self.children + later.children,
            messages=self.messages + later.messages,
            events=self.events + later.events,
        )

    def change(
        self,
        base: Job | None,
        token: str,
        *,
        consumes_message: str | None = None,
        quota: Quota | None = None,
        keep_lease_s: float | None = None,
    ) -> Change:
        """The write that takes the stored job from `base` (None: not stored yet) to this one."""
        revision = 1 if base is None else base.revision + 1
        job = replace(self.job, revision=revision, token=token)
        return Change(
            job_id=job.id,
            token=token,
            job=job,
            expected=None if base is None else base.revision,
            tasks=self.tasks,
            drop_tasks=self.drop_tasks,
            opens_branches=self.opens_branches,
            closes_branches=self.closes_branches,
            children=self.children,
            messages=self.messages,
            consumes_message=consumes_message,
            events=self.events,
            # In the same write, so that no delivery is lost and none reports what was not stored.
            records=() if job.webhook_url is None else webhook_records(job, self.events),
            quota=quota,
            keep_lease_s=keep_lease_s,
        )


def backoff_s(policy: RetryPolicy, failures: int, random: float) -> float:
    """Seconds to wait after the nth failure: first, first x factor, … up to the cap, spread by `random`."""
    exponent = min(max(failures - 1, 0), 64)
    pause = min(policy.first_s * policy.factor**exponent, policy.cap_s)
    return pause * (1 + policy.jitter * (2 * random - 1))


def retry_at(now: datetime, policy: RetryPolicy, failures: int, random: float) -> datetime:
    """The instant of the next try."""
    return add_seconds(now, backoff_s(policy, failures, random))
