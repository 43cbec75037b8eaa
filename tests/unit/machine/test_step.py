"""Steps add up, and pauses grow, are capped and stay within their jitter."""

from datetime import UTC, datetime
from typing import TypeVar

from hypothesis import assume, given
from hypothesis import strategies as st

from regista.machine.step import MachineSettings, Step, backoff_s, retry_at
from regista.model import (
    ChildJob,
    Event,
    EventType,
    Job,
    JobMessage,
    JobMessageKind,
    Quota,
    RetryPolicy,
    Task,
    TaskWrite,
)
from regista.model.task import DEFAULT_RETRY
from regista.testing.clock import BEGINNING

T = TypeVar("T")

JOBS = st.builds(
    Job,
    id=st.just("j"),
    blueprint=st.just("b"),
    version=st.just("v"),
    state=st.text("abc", min_size=1, max_size=2),
    created_at=st.just(BEGINNING),
    updated_at=st.just(BEGINNING),
    visit=st.integers(0, 9),
)
TASKS = st.builds(
    TaskWrite, st.builds(Task, id=st.text("t", max_size=3), job_id=st.just("j"), type=st.just("w"))
)
EVENTS = st.builds(Event, type=st.sampled_from(EventType), at=st.just(BEGINNING))
MESSAGES = st.builds(JobMessage, st.text("m"), st.sampled_from(JobMessageKind), st.just("p"), st.just("j"))
BIRTHS = st.builds(ChildJob, JOBS, st.just(()))


def several(things: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(things, max_size=3).map(tuple)


STEPS = st.builds(
    Step,
    job=JOBS,
    tasks=several(TASKS),
    drop_tasks=st.booleans(),
    opens_branches=st.none() | st.integers(1, 5),
    closes_branches=st.integers(0, 3),
    children=several(BIRTHS),
    messages=several(MESSAGES),
    events=several(EVENTS),
)


@given(first=STEPS, second=STEPS)
def test_a_step_and_the_next_add_up_to_one(first: Step, second: Step) -> None:
    both = first.then(second)
    assert both.job == second.job
    assert both.tasks == first.tasks + second.tasks
    assert both.children == first.children + second.children
    assert both.messages == first.messages + second.messages
    assert both.events == first.events + second.events
    assert both.drop_tasks == (first.drop_tasks or second.drop_tasks)
    assert both.closes_branches == first.closes_branches + second.closes_branches
    last = second.opens_branches
    assert both.opens_branches == (first.opens_branches if last is None else last)


@given(first=STEPS, second=STEPS, third=STEPS)
def test_the_order_of_adding_does_not_matter(first: Step, second: Step, third: Step) -> None:
    assert first.then(second).then(third) == first.then(second.then(third))


@given(step=STEPS, revision=st.none() | st.integers(1, 100), hold=st.none() | st.floats(1, 60))
def test_the_change_goes_from_the_stored_revision_to_the_next(
    step: Step, revision: int | None, hold: float | None
) -> None:
    base = None
    if revision is not None:
        base = Job(
            id="j",
            blueprint="b",
            version="v",
            state="s",
            created_at=BEGINNING,
            updated_at=BEGINNING,
            revision=revision,
        )
    change = step.change(base, "token", consumes_message="m", keep_lease_s=hold)
    assert change.job is not None
    assert (change.expected, change.job.revision) == (revision, (revision or 0) + 1)
    assert (change.token, change.job.token, change.consumes_message, change.keep_lease_s) == (
        "token",
        "token",
        "m",
        hold,
    )
    assert (change.tasks, change.events, change.messages) == (step.tasks, step.events, step.messages)


def test_a_change_carries_the_quota() -> None:
    job = Job(id="j", blueprint="b", version="v", state="s", created_at=BEGINNING, updated_at=BEGINNING)
    quota = Quota("ada", 5, 60.0)
    assert Step(job=job).change(None, "token", quota=quota).quota == quota


POLICIES = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 100),
    first_s=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    cap_s=st.floats(0, 1e7),
    jitter=st.floats(0, 1),
)


@given(policy=POLICIES, failures=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_pauses_never_shrink_with_more_failures(policy: RetryPolicy, failures: int, chance: float) -> None:
    assert backoff_s(policy, failures, chance) <= backoff_s(policy, failures + 1, chance)


@given(policy=POLICIES, failures=st.integers(0, 10_000), chance=st.floats(0, 1))
def test_a_pause_is_capped_and_within_its_jitter(policy: RetryPolicy, failures: int, chance: float) -> None:
    middle = backoff_s(policy, failures, 0.5)
    assert 0 <= middle <= policy.cap_s
    low, high = middle * (1 - policy.jitter), middle * (1 + policy.jitter)
    slack = 1e-9 * max(1.0, middle)
    assert low - slack <= backoff_s(policy, failures, chance) <= high + slack


@given(policy=POLICIES, chance=st.floats(0, 1))
def test_the_first_pause_is_the_first_and_each_further_one_factor_times_longer(
    policy: RetryPolicy, chance: float
) -> None:
    first, second = backoff_s(policy, 1, 0.5), backoff_s(policy, 2, 0.5)
    assert first == min(policy.first_s, policy.cap_s)
    assume(policy.first_s * policy.factor <= policy.cap_s)
    assert abs(second - policy.first_s * policy.factor) <= 1e-6 * max(1.0, second)


def test_a_retry_beyond_the_calendar_is_capped() -> None:
    policy = RetryPolicy(first_s=1e14, cap_s=1e15)
    assert retry_at(BEGINNING, policy, 1, 0.5) == datetime.max.replace(tzinfo=UTC)


def test_a_policy_that_is_the_usual_one_is_left_out_of_every_task() -> None:
    assert MachineSettings(task_retry=RetryPolicy()).task_retry is DEFAULT_RETRY
    assert MachineSettings(task_retry=RetryPolicy(max_attempts=9)).task_retry.max_attempts == 9
