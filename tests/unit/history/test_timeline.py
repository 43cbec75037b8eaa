"""Events become spans: states, tasks, attempts, and waits with their reason."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from regista.blueprint import ActionFactory, JobContext
from regista.errors import TransientError
from regista.history.projection import JobProjection, task_label
from regista.history.timeline import StateSpan, Timeline, Wait
from regista.model import Event, EventType, Job, RetryPolicy
from regista.testing.orchestrator import TestOrchestrator
from tests.support import Puppet, fan_out, one_task, script

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def timeline_of(
    job_id: str, events: Iterable[Event], at: datetime, status: str = "", truncated: bool = False
) -> Timeline:
    projection = JobProjection(job_id)
    for event in events:
        projection.apply(event)
    return projection.timeline(at, status, truncated)


def told(kit: TestOrchestrator, job: Job) -> Timeline:
    return timeline_of(job.id, kit.events(job), kit.now, status=kit.get(job).status.value)


def length(span: Any) -> float | None:
    """Seconds from one end to the other."""
    return None if span.ended_at is None else (span.ended_at - span.began_at).total_seconds()


def waits(state: StateSpan) -> list[tuple[str, float | None]]:
    return [(wait.reason, length(wait)) for wait in state.waits]


def nap(context: JobContext, actions: ActionFactory) -> None:
    actions.sleep(40, then="done")


def test_states_follow_each_other_without_a_gap() -> None:
    with TestOrchestrator(script(nap, "done")) as kit:
        job = kit.run("script")
        line = told(kit, job)

        start, done = line.states
        assert (line.blueprint, line.status, line.ended_at) == ("script", "finished", job.finished_at)
        assert (start.state, start.next_state, length(start)) == ("start", "done", 40.0)
        assert done.began_at == start.ended_at
        assert waits(start) == [("timer", 40.0)]
        assert start.waits[0].detail == {"seconds": 40}


def test_a_task_waits_for_a_worker_and_then_runs() -> None:
    with TestOrchestrator(one_task()) as kit:
        job = kit.submit("script")
        kit.skip(25)
        puppet = Puppet(kit)
        puppet.join()
        kit.skip(10)
        puppet.finish(puppet.tasks[0])
        (task,) = told(kit, job).states[0].tasks

        (attempt,) = task.attempts
        assert (task.type, task.outcome, attempt.outcome, attempt.worker_id) == (
            "work",
            "finished",
            "finished",
            "puppet",
        )
        assert [(wait.reason, length(wait)) for wait in task.waits] == [("worker", 25.0)]
        assert attempt.started_at is not None
        assert attempt.ended_at is not None
        assert (attempt.ended_at - attempt.started_at).total_seconds() == 10


def test_another_try_waits_for_its_time() -> None:
    tries: list[int] = []

    def work(params: Any) -> dict[str, Any]:
        tries.append(1)
        if len(tries) < 3:
            raise TransientError("not yet")
        return {}

    policy = RetryPolicy(max_attempts=3, first_s=8.0)
    with TestOrchestrator(one_task(retry=policy)) as kit:
        kit.task("work")(work)
        job = kit.run("script")
        (task,) = told(kit, job).states[0].tasks

        assert [attempt.outcome for attempt in task.attempts] == ["failed", "failed", "finished"]
        assert task.attempts[0].code == "TRANSIENT_ERROR"
        pauses = [wait for wait in task.waits if wait.reason == "retry"]
        assert len(pauses) == 2
        assert all(
            length(wait) and abs((length(wait) or 0) - wait.detail["seconds"]) < 0.002 for wait in pauses
        )


def test_branches_stand_side_by_side() -> None:
    with TestOrchestrator(fan_out(3)) as kit:
        kit.task("work")(lambda params: {"n": params["n"]})
        line = told(kit, kit.run("script"))

        assert [state.state for state in line.states] == ["start", "join", "done"]
        assert [task.outcome for task in line.states[0].tasks] == ["finished"] * 3


def test_a_live_job_is_open_at_its_end() -> None:
    with TestOrchestrator(one_task()) as kit:
        job = kit.submit("script")
        line = told(kit, job)

        (state,) = line.states
        (task,) = state.tasks
        assert (line.ended_at, state.ended_at, task.ended_at, task.outcome) == (None, None, None, "queued")
        assert [(wait.reason, wait.ended_at) for wait in task.waits] == [("worker", None)]
        assert line.status == "waiting_for_worker"


def test_a_person_is_waited_for() -> None:
    def ask(context: JobContext, actions: ActionFactory) -> None:
        actions.await_human_approval(message="May I?", transitions={"approve": "done"})

    with TestOrchestrator(script(ask, "done")) as kit:
        job = kit.submit("script")
        kit.skip(3600)
        kit.approve(job, "approve")
        (wait,) = told(kit, job).states[0].waits

        assert (wait.reason, length(wait), wait.detail) == ("human", 3600.0, {"message": "May I?"})


def test_a_child_is_waited_for_and_named() -> None:
    def parent(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("child", {}, {"success": "done"})

    with TestOrchestrator(script(parent, "done"), script(nap, "done", name="child")) as kit:
        line = told(kit, kit.run("script"))

        (wait,) = line.states[0].waits
        assert (wait.reason, length(wait), wait.detail["blueprint"]) == ("child", 40.0, "child")


def test_a_handler_that_raises_is_tried_again_and_then_waits_to_be_mended() -> None:
    def broken(context: JobContext, actions: ActionFactory) -> None:
        raise RuntimeError("boom")

    with TestOrchestrator(script(broken, "done")) as kit:
        job = kit.run("script")
        kit.skip(60)
        (state,) = told(kit, job).states

        assert state.failures == 4
        assert [wait.reason for wait in state.waits[:-1]] == ["retry"] * (len(state.waits) - 1)
        assert (state.waits[-1].reason, state.waits[-1].ended_at) == ("release", None)
        assert all(wait.ended_at is not None for wait in state.waits[:-1])


def test_what_is_called_off_with_its_job_is_cancelled() -> None:
    with TestOrchestrator(one_task()) as kit:
        job = kit.submit("script")
        kit.skip(5)
        kit.cancel(job, "enough")
        line = told(kit, job)

        assert (line.status, line.states[0].tasks[0].outcome) == ("cancelled", "cancelled")
        assert line.ended_at is not None


def test_the_stop_is_waited_for_while_a_worker_has_a_task() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.cancel(job, "enough")
        (wait,) = told(kit, job).states[0].waits

        assert (wait.reason, wait.ended_at, wait.detail) == ("cancel", None, {"message": "enough"})


def test_no_events_make_an_empty_life() -> None:
    line = timeline_of("j", [], NOON, truncated=True)

    assert (line.states, line.began_at, line.truncated) == ([], NOON, True)


def test_a_word_about_a_task_after_its_state_was_left_makes_no_trouble() -> None:
    def event(kind: EventType, second: int, **more: Any) -> Event:
        return Event(type=kind, at=NOON + timedelta(seconds=second), **more)

    line = timeline_of(
        "j",
        [
            event(EventType.STATE_STARTED, 0, state="a"),
            event(EventType.TASK_DISPATCHED, 1, task_id="t", attempt=1, detail={"type": "x", "queue": "q"}),
            event(EventType.STATE_FINISHED, 2, state="a", next_state="b"),
            event(EventType.STATE_STARTED, 2, state="b"),
            event(EventType.TASK_LOST, 3, task_id="t", attempt=1, worker_id="w"),
        ],
        NOON,
    )

    assert [len(state.tasks) for state in line.states] == [1, 0]
    assert line.states[0].tasks[0].outcome == "lost"
    assert line.states[0].tasks[0].waits == [
        Wait(reason="worker", began_at=NOON + timedelta(seconds=1), ended_at=NOON + timedelta(seconds=3))
    ]


def test_an_event_that_is_applied_twice_counts_once() -> None:
    with TestOrchestrator(one_task(retry=RetryPolicy(first_s=1, jitter=0))) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        puppet.fail(puppet.tasks[0], "TRANSIENT_ERROR")
        kit.skip(2)
        puppet.finish(puppet.tasks[1])
        once, twice = JobProjection(job.id), JobProjection(job.id)
        for event in kit.events(job):
            once.apply(event)
        for event in [*kit.events(job), *kit.events(job)]:
            twice.apply(event)

        assert [attempt.state for attempt in once.attempts()] == ["failed", "finished"]
        assert twice.attempts() == once.attempts()
        assert twice.bill() == once.bill()
        assert twice.timeline(kit.now) == once.timeline(kit.now)


def test_a_branch_is_called_by_its_type_and_its_number() -> None:
    assert task_label("job_1_0", "render", 1) == "render"
    assert [task_label(f"job_1_{n}", "render", 2) for n in range(2)] == ["render #1", "render #2"]
