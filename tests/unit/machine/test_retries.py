"""The fate of an attempt, as values. DESIGN 5 rules; FENCES 14."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.machine.retries import (
    CancelJob,
    FailJob,
    FollowTransition,
    QuarantineJob,
    RetryTask,
    after_loss,
    after_result,
    after_timeout,
    next_attempt,
)
from regista.model import AttemptState, RetryPolicy, Task, TaskFailure, TaskResult
from regista.testing.clock import BEGINNING as NOW


def task(**more: Any) -> Task:
    base: dict[str, Any] = {
        "transitions": {"success": "done"},
        "state": AttemptState.STARTED,
        "worker_id": "w",
    }
    return Task(id="j_1_0", job_id="j", type="work", **(base | more))


def result(status: str | None = None, code: str | None = None, data: Any = None) -> TaskResult:
    error = None if code is None else TaskFailure(code, "broken")
    return TaskResult(task_id="j_1_0-1", job_id="j", worker_id="w", status=status, data=data, error=error)


def test_no_status_is_success() -> None:
    assert after_result(task(), result(), NOW, 0.5) == FollowTransition("done")


def test_an_unknown_status_fails_and_names_the_known_ones() -> None:
    fate = after_result(task(transitions={"b": "x", "a": "y"}), result("c"), NOW, 0.5)
    assert isinstance(fate, FailJob)
    assert "expected one of a, b" in fate.fault.message


def test_a_worker_that_gave_up_as_cancelled_cancels_unless_that_is_a_way() -> None:
    assert isinstance(after_result(task(), result("cancelled"), NOW, 0.5), CancelJob)
    ways = {"success": "done", "cancelled": "undo"}
    assert after_result(task(transitions=ways), result("cancelled"), NOW, 0.5) == FollowTransition("undo")


@pytest.mark.parametrize(
    ("code", "fate"),
    [
        ("TRANSIENT_ERROR", RetryTask),
        ("SOMETHING_NOBODY_KNOWS", RetryTask),
        ("PERMANENT_ERROR", QuarantineJob),
        ("SECURITY_ERROR", QuarantineJob),
        ("DEPENDENCY_ERROR", QuarantineJob),
        ("INVALID_INPUT_ERROR", FailJob),
        ("INTEGRITY_MISMATCH_ERROR", FailJob),
    ],
)
def test_the_kind_of_an_error_decides(code: str, fate: type) -> None:
    assert isinstance(after_result(task(), result(code=code), NOW, 0.5), fate)


def test_an_error_counts_even_beside_a_status_of_success() -> None:
    assert isinstance(after_result(task(), result("success", "PERMANENT_ERROR"), NOW, 0.5), QuarantineJob)


def test_max_attempts_counts_runs_that_really_failed() -> None:
    policy = RetryPolicy(max_attempts=3)
    for failed in (0, 1):
        fate = after_result(task(retry=policy, failed_runs=failed), result(code="X"), NOW, 0.5)
        assert isinstance(fate, RetryTask)
        assert (fate.task.failed_runs, fate.task.attempt) == (failed + 1, 2)
    assert isinstance(
        after_result(task(retry=policy, failed_runs=2), result(code="X"), NOW, 0.5), QuarantineJob
    )


def test_the_way_of_a_code_comes_after_the_retries_and_before_the_kind() -> None:
    ways = {"success": "done", "TRANSIENT_ERROR": "repair", "JAM": "unjam"}
    fresh, spent = task(transitions=ways), task(transitions=ways, failed_runs=3)
    assert isinstance(after_result(fresh, result(code="JAM"), NOW, 0.5), RetryTask)
    jammed = after_result(spent, result(code="JAM"), NOW, 0.5)
    assert isinstance(jammed, FollowTransition)
    assert jammed.to == "unjam"
    # a code of its own falls back to the way of its kind
    other = after_result(spent, result(code="OTHER"), NOW, 0.5)
    assert isinstance(other, FollowTransition)
    assert other.to == "repair"


def test_lost_attempts_have_a_budget_of_their_own_and_spend_no_run() -> None:
    policy = RetryPolicy(max_attempts=1, lost_budget=2)
    fate = after_loss(task(retry=policy, lost_runs=1), NOW, 0.0)
    assert isinstance(fate, RetryTask)
    assert (fate.task.lost_runs, fate.task.failed_runs) == (2, 0)
    spent = after_loss(task(retry=policy, lost_runs=2), NOW, 0.0)
    assert isinstance(spent, QuarantineJob)
    assert spent.fault.code == "lost"


def test_each_loss_is_followed_by_a_longer_pause_than_the_one_before() -> None:
    pauses = []
    for losses in range(10):
        fate = after_loss(task(lost_runs=losses), NOW, 0.5)
        assert isinstance(fate, RetryTask)
        until = fate.task.not_before
        pauses.append(0.0 if until is None else (until - NOW).total_seconds())
    assert pauses == [0, *(pytest.approx(seconds) for seconds in (1, 2, 4, 8, 16, 32, 60, 60, 60))]


def test_an_expired_deadline_follows_the_way_named_timeout_or_fails() -> None:
    way = after_timeout(task(transitions={"success": "done", "timeout": "late"}), "result_timeout", "late")
    assert isinstance(way, FollowTransition)
    assert way.to == "late"
    assert isinstance(after_timeout(task(), "result_timeout", "late"), FailJob)


def test_the_next_attempt_keeps_what_belongs_to_the_task_and_drops_what_belonged_to_the_attempt() -> None:
    held = task(
        attempt=4,
        session=9,
        offered_at=NOW,
        started_at=NOW,
        seen_at=NOW,
        progress=0.5,
        progress_message="half",
        checkpoint={"at": 7},
        result_by=NOW + timedelta(hours=1),
        lost_runs=2,
    )
    fresh = next_attempt(held, NOW, failed_runs=1)
    assert (fresh.attempt, fresh.state, fresh.worker_id, fresh.session) == (5, AttemptState.QUEUED, None, 0)
    assert (fresh.offered_at, fresh.started_at, fresh.seen_at, fresh.progress) == (None, None, None, None)
    assert (fresh.checkpoint, fresh.result_by, fresh.lost_runs) == ({"at": 7}, held.result_by, 2)


@given(
    failed=st.integers(0, 20),
    max_attempts=st.integers(1, 20),
    code=st.sampled_from([None, "TRANSIENT_ERROR", "PERMANENT_ERROR", "INVALID_INPUT_ERROR", "X"]),
    status=st.sampled_from([None, "success", "failure", "cancelled", "timeout", "odd"]),
    ways=st.dictionaries(
        st.sampled_from(["success", "failure", "cancelled", "timeout", "PERMANENT_ERROR", "X"]), st.just("to")
    ),
    chance=st.floats(0, 1),
)
def test_every_word_of_a_worker_has_a_fate(
    failed: int,
    max_attempts: int,
    code: str | None,
    status: str | None,
    ways: dict[str, str],
    chance: float,
) -> None:
    given_task = task(transitions=ways, failed_runs=failed, retry=RetryPolicy(max_attempts=max_attempts))
    fate = after_result(given_task, result(status, code), NOW, chance)
    match fate:
        case RetryTask(again):
            assert again.attempt == 2
            assert again.not_before is not None
            assert again.not_before >= NOW
            assert again.failed_runs < max_attempts
        case FollowTransition(to):
            assert to in ways.values()
        case FailJob() | QuarantineJob():
            assert fate.fault.code
        case CancelJob():
            assert status == "cancelled"
