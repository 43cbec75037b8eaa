from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from regista import Event, EventType
from regista.cli.follow import drawing
from regista.cli.story import Story, Teller
from regista.wire.jobs import Progress

START = datetime(2026, 1, 1, tzinfo=UTC)


def event(kind: EventType, after_s: float = 0.0, **facts: Any) -> Event:
    return Event(type=kind, at=START + timedelta(seconds=after_s), job_id="j1", **facts)


LIFE: list[Event | Progress] = [
    event(EventType.JOB_CREATED, detail={"blueprint": "video"}),
    event(EventType.STATE_STARTED, state="ingest"),
    event(EventType.TASK_DISPATCHED, 0.1, task_id="j1_1_0", attempt=1, detail={"type": "probe"}),
    event(EventType.TASK_STARTED, 0.2, task_id="j1_1_0", attempt=1, worker_id="w1"),
    Progress(at=START, job_id="j1", task_id="j1_1_0-1", progress=0.5, message="half"),
    event(
        EventType.TASK_FAILED, 0.3, task_id="j1_1_0", attempt=1, code="TRANSIENT_ERROR", message="no answer"
    ),
    event(EventType.TASK_RETRIED, 0.4, task_id="j1_1_0", attempt=2),
    event(EventType.TASK_FINISHED, 0.9, task_id="j1_1_0", attempt=2, worker_id="w2"),
    event(EventType.STATE_FINISHED, 1.0, state="ingest", next_state="review"),
    event(EventType.STATE_STARTED, 1.0, state="review"),
    event(EventType.APPROVAL_REQUESTED, 1.1, message="Publish?"),
    event(EventType.APPROVAL_GIVEN, 2.0, code="approve", message="yes"),
    event(EventType.JOB_FINISHED, 3.0, status="finished"),
]


def story(length: int) -> Story:
    told = Story("j1")
    for each in LIFE[:length]:
        told.hear(each)
    return told


def test_a_story_knows_states_tasks_and_the_end() -> None:
    whole = story(len(LIFE))

    assert (whole.blueprint, whole.status) == ("video", "finished")
    assert [(stay.state, stay.ended is not None) for stay in whole.stays] == [
        ("ingest", True),
        ("review", False),
    ]
    assert whole.ended == START + timedelta(seconds=3)


def test_a_task_shows_its_progress_and_starts_anew_when_it_is_tried_again() -> None:
    (piece,) = story(5).pieces.values()
    assert (piece.type, piece.worker, piece.progress, piece.message) == ("probe", "w1", 0.5, "half")

    (piece,) = story(7).pieces.values()
    assert (piece.attempt, piece.state, piece.progress) == (2, "is tried again", None)

    (piece,) = story(8).pieces.values()
    assert (piece.over, piece.progress) == (True, 1.0)


def test_what_a_person_must_do_is_said_while_it_is_so() -> None:
    assert (story(11).status, story(11).waits) == ("waiting_for_human", "Publish?")
    assert story(12).waits == ""


@pytest.mark.parametrize("length", range(1, len(LIFE) + 1))
def test_every_moment_can_be_drawn_and_told(length: int) -> None:
    console = Console(width=100, force_terminal=False)
    with console.capture() as captured:
        console.print(drawing(story(length), START + timedelta(seconds=4)))

    assert "j1" in captured.get()
    assert LIFE[length - 1].type in Teller().line(LIFE[length - 1])


def test_lines_tell_events_apart() -> None:
    teller = Teller()
    lines = [teller.line(each) for each in LIFE]

    assert lines[5] == "   0.300 s  task_failed         probe, attempt 1, TRANSIENT_ERROR: no answer"
    assert lines[4] == "   0.000 s  progress            probe, 50%, half"
    assert lines[8] == "   1.000 s  state_finished      ingest → review"
    assert lines[11] == "   2.000 s  approval_given      approve yes"


def test_a_long_loop_and_a_wide_fan_out_do_not_flood_the_screen() -> None:
    told = Story("j1")
    for number in range(50):
        told.hear(event(EventType.STATE_STARTED, number, state=f"s{number}"))
    for number in range(100):
        told.hear(event(EventType.TASK_DISPATCHED, 60, task_id=f"j1_1_{number}", attempt=1))
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
        Progress(at=START, job_id="j1", task_id="t-1", progress=0.5, message=EVIL),
        event(EventType.TASK_FAILED, task_id="t", attempt=1, code=EVIL, message=EVIL),
        event(EventType.APPROVAL_REQUESTED, message=EVIL),
    ]


def test_what_workers_and_blueprints_say_is_shown_and_never_obeyed() -> None:
    told, teller = Story("j1"), Teller()
    console = Console(width=200, color_system=None)
    for each in evil_life():
        told.hear(each)
        with console.capture() as drawn:
            console.print(drawing(told))
        assert not set(drawn.get()) & set("\x1b\x07\x9b\r\u202e")
        line = teller.line(each)
        assert not set(line) & set("\x1b\x07\x9b\r\u202e\n")


def test_who_did_something_is_told_and_whose_job_it_is_goes_without_saying() -> None:
    teller = Teller()
    created = teller.line(event(EventType.JOB_CREATED, detail={"blueprint": "video"}, actor="client:ada"))
    given = teller.line(event(EventType.APPROVAL_GIVEN, 2.0, code="yes", actor="approval_link"))
    asked = teller.line(event(EventType.CANCEL_REQUESTED, 3.0, actor="operator:ops"))
    assert created.endswith("video")
    assert given.endswith("yes, by approval_link")
    assert asked.endswith("by operator:ops")
