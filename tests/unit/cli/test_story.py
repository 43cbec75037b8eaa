from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from regista import Event, EventType
from regista.cli.follow import apply, drawing, waiting_text
from regista.cli.story import EventLines
from regista.history.projection import JobProjection
from regista.schemas.jobs import Progress

START = datetime(2026, 1, 1, tzinfo=UTC)


def event(kind: EventType, after_s: float = 0.0, **facts: Any) -> Event:
    return Event(type=kind, at=START + timedelta(seconds=after_s), job_id="j1", **facts)


LIFE: list[Event | Progress] = [
    event(EventType.JOB_CREATED, detail={"blueprint": "video"}),
    event(EventType.STATE_STARTED, state="ingest"),
    event(EventType.TASK_DISPATCHED, 0.1, task_id="j1_1_0", attempt=1, detail={"type": "probe"}),
    event(EventType.TASK_STARTED, 0.2, task_id="j1_1_0", attempt=1, worker_id="w1"),
    Progress(
        at=START + timedelta(seconds=0.25),
        job_id="j1",
        task_id="j1_1_0",
        attempt_id="j1_1_0-1",
        progress=0.5,
        message="half",
    ),
    event(
        EventType.TASK_FAILED, 0.3, task_id="j1_1_0", attempt=1, code="TRANSIENT_ERROR", message="no answer"
    ),
    event(EventType.TASK_RETRIED, 0.4, task_id="j1_1_0", attempt=2),
    event(EventType.TASK_FINISHED, 0.9, task_id="j1_1_0", attempt=2, worker_id="w2"),
    event(EventType.STATE_FINISHED, 1.0, state="ingest", next_state="review"),
    event(EventType.STATE_STARTED, 1.0, state="review"),
    event(EventType.APPROVAL_REQUESTED, 1.1, message="Publish?", detail={"decisions": ["approve", "later"]}),
    event(EventType.APPROVAL_GIVEN, 2.0, code="approve", message="yes"),
    event(EventType.JOB_FINISHED, 3.0, status="finished"),
]


def line_of(told: Event) -> str:
    (line,) = EventLines().of(told)
    return line


def drawn(told: JobProjection, after_s: float) -> str:
    console = Console(width=120, force_terminal=False)
    with console.capture() as captured:
        console.print(drawing(told, START + timedelta(seconds=after_s)))
    return captured.get()


def story(length: int) -> JobProjection:
    told = JobProjection("j1")
    for each in LIFE[:length]:
        apply(told, each)
    return told


def test_a_story_knows_states_tasks_and_the_end() -> None:
    whole = story(len(LIFE))

    assert (whole.blueprint, whole.status) == ("video", "finished")
    assert [(state.state, state.next_state) for state in whole.states] == [
        ("ingest", "review"),
        ("review", None),
    ]
    assert whole.ended_at == START + timedelta(seconds=3)


def test_a_task_shows_its_progress_and_starts_anew_when_it_is_tried_again() -> None:
    (task,) = story(5).open_tasks
    assert (task.type, task.last.worker_id, task.progress, task.message) == ("probe", "w1", 0.5, "half")

    (task,) = story(7).open_tasks
    assert (task.last.number, task.last.state, task.progress) == (2, "queued", None)

    (task,) = story(8).open_tasks
    assert (task.last.state, task.progress) == ("finished", 1.0)


def test_what_a_person_must_do_is_said_while_it_is_so() -> None:
    assert (story(11).status, waiting_text(story(11))) == ("waiting_for_human", "Publish?")
    assert waiting_text(story(12)) == ""


@pytest.mark.parametrize("length", range(1, len(LIFE) + 1))
def test_every_moment_can_be_drawn_and_told(length: int) -> None:
    console = Console(width=100, force_terminal=False)
    with console.capture() as captured:
        console.print(drawing(story(length), START + timedelta(seconds=4)))

    assert "j1" in captured.get()
    teller = EventLines()
    lines = [teller.of(each) for each in LIFE[:length]]
    assert LIFE[length - 1].type in lines[-1][-1]


def test_lines_tell_events_apart() -> None:
    teller = EventLines()
    lines = [line for each in LIFE for line in teller.of(each)]

    assert lines[5] == "   0.300 s  task_failed         probe, attempt 1, TRANSIENT_ERROR: no answer"
    assert lines[4] == "   0.250 s  progress            probe, 50%, half"
    assert lines[8] == "   1.000 s  state_finished      ingest → review"
    assert lines[11] == "   2.000 s  approval_given      approve yes"


def test_a_long_loop_and_a_wide_fan_out_do_not_flood_the_screen() -> None:
    told = JobProjection("j1")
    for number in range(50):
        apply(told, event(EventType.STATE_STARTED, number, state=f"s{number}"))
    for number in range(100):
        apply(told, event(EventType.TASK_DISPATCHED, 60, task_id=f"j1_1_{number}", attempt=1))
    console = Console(width=100)
    with console.capture() as captured:
        console.print(drawing(told))

    assert len(captured.get().splitlines()) < 40


EVIL = "\x1b]0;TITLE\x07 \x9b31m \r \u202e [/red] [bold]\n   0.000 s  job_finished"


def evil_life() -> list[Event | Progress]:
    return [
        event(EventType.JOB_CREATED, detail={"blueprint": EVIL}),
        event(EventType.STATE_STARTED, state=EVIL),
        event(EventType.TASK_DISPATCHED, task_id="t", attempt=1, detail={"type": EVIL}),
        event(EventType.TASK_STARTED, task_id="t", attempt=1, worker_id=EVIL),
        Progress(at=START, job_id="j1", task_id="t", attempt_id="t-1", progress=0.5, message=EVIL),
        event(EventType.TASK_FAILED, task_id="t", attempt=1, code=EVIL, message=EVIL),
        event(EventType.APPROVAL_REQUESTED, message=EVIL),
    ]


def test_what_workers_and_blueprints_say_is_shown_and_never_obeyed() -> None:
    told, teller = JobProjection("j1"), EventLines()
    console = Console(width=200, color_system=None)
    for each in evil_life():
        apply(told, each)
        with console.capture() as drawn:
            console.print(drawing(told))
        assert not set(drawn.get()) & set("\x1b\x07\x9b\r\u202e")
        (line,) = teller.of(each)
        assert not set(line) & set("\x1b\x07\x9b\r\u202e\n")


def test_who_did_something_is_told_and_whose_job_it_is_goes_without_saying() -> None:
    created = line_of(event(EventType.JOB_CREATED, detail={"blueprint": "video"}, actor="client:ada"))
    given = line_of(event(EventType.APPROVAL_GIVEN, 2.0, code="yes", actor="approval_link"))
    asked = line_of(event(EventType.CANCEL_REQUESTED, 3.0, actor="operator:ops"))
    assert created.endswith("video")
    assert given.endswith("yes, by approval_link")
    assert asked.endswith("by operator:ops")


def test_the_end_of_a_job_is_told_without_saying_a_word_twice() -> None:
    end = EventType.JOB_FINISHED
    cancelled = event(end, status="cancelled", code="cancelled", message="no longer")
    failed = event(end, status="failed", code="PERMANENT_ERROR", message="no such codec")
    held = event(EventType.JOB_QUARANTINED, status="quarantined", code="PERMANENT_ERROR", message="no codec")

    assert line_of(cancelled).endswith("job_finished        cancelled: no longer")
    assert line_of(failed).endswith("job_finished        failed, PERMANENT_ERROR: no such codec")
    assert line_of(held).endswith("job_quarantined     PERMANENT_ERROR: no codec")
    assert line_of(event(end, status="finished")).endswith("job_finished        finished")


def test_a_task_that_was_cancelled_is_not_told_as_one_that_is_done() -> None:
    told = story(4)
    end = event(EventType.TASK_FINISHED, 1, task_id="j1_1_0", attempt=1, worker_id="w1", status="cancelled")
    apply(told, end)

    (task,) = told.open_tasks
    assert (task.last.state, task.progress) == ("cancelled", None)
    assert line_of(end).endswith("attempt 1, by w1, cancelled")


def test_progress_is_never_told_before_the_start_of_its_task() -> None:
    teller = EventLines()
    early = Progress(
        at=START + timedelta(seconds=0.3), job_id="j1", task_id="j1_1_0", progress=0.1, message=""
    )

    told = [teller.of(each) for each in (*LIFE[:3], early, LIFE[3])]

    assert told[3] == []
    assert [line.split()[2] for line in told[4]] == ["task_started", "progress"]


def test_branches_of_a_fan_out_have_numbers_and_a_single_task_has_none() -> None:
    teller = EventLines()
    dispatched = [
        teller.of(
            event(
                EventType.TASK_DISPATCHED,
                task_id=f"j1_1_{number}",
                attempt=1,
                detail={"type": "cut", "branches": 2},
            )
        )
        for number in range(2)
    ]
    started = [
        teller.of(event(EventType.TASK_STARTED, 1, task_id=f"j1_1_{number}", attempt=1))
        for number in range(2)
    ]

    for lines in (dispatched, started):
        names = [line.split("  ")[-1].strip() for (line,) in lines]
        assert names == ["cut #1, attempt 1", "cut #2, attempt 1"]
    single = event(EventType.TASK_DISPATCHED, task_id="j1_2_0", attempt=1, detail={"type": "join"})
    assert line_of(single).endswith("join, attempt 1")


def test_whoever_is_asked_sees_how_each_answer_is_given() -> None:
    seen = drawn(story(11), 2)

    assert "answer with: regista jobs approve j1\n" in seen
    assert "answer with: regista jobs approve j1 --decision later\n" in seen
    assert "reject" not in seen


def test_a_task_that_no_worker_takes_is_wondered_about_after_a_while() -> None:
    assert "explain" not in drawn(story(3), 2)
    assert "regista jobs explain j1" in drawn(story(3), 9)
    assert "explain" not in drawn(story(4), 9)
