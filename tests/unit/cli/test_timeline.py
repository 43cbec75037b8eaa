"""Bars: where they begin and end, and what stands beside them."""

from datetime import UTC, datetime, timedelta

import pytest

from regista.cli.output import Output
from regista.cli.timeline import Row, bar, draw, rows_of
from regista.history.timeline import AttemptSpan, StateSpan, TaskSpan, Timeline, Wait

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def a_life(ended: bool = True) -> Timeline:
    failed = AttemptSpan(
        attempt=1,
        outcome="failed",
        queued_at=at(0),
        started_at=at(10),
        ended_at=at(20),
        worker_id="w1",
        code="BAD",
    )
    second = AttemptSpan(
        attempt=2,
        outcome="finished" if ended else "started",
        queued_at=at(20),
        started_at=at(30),
        ended_at=at(40) if ended else None,
        worker_id="w2",
    )
    task = TaskSpan(
        task_id="t",
        type="render",
        queue="render",
        began_at=at(0),
        ended_at=second.ended_at,
        outcome=second.outcome,
        attempts=[failed, second],
        waits=[
            Wait(reason="worker", began_at=at(0), ended_at=at(10)),
            Wait(reason="retry", began_at=at(20), ended_at=at(28)),
            Wait(reason="worker", began_at=at(28), ended_at=at(30)),
        ],
    )
    state = StateSpan(
        state="make", began_at=at(0), ended_at=at(40) if ended else None, tasks=[task], failures=2
    )
    return Timeline(
        job_id="j1",
        blueprint="film",
        status="finished" if ended else "running",
        began_at=at(0),
        at=at(40),
        ended_at=at(40) if ended else None,
        states=[state],
    )


def test_rows_stand_in_the_order_of_what_happened() -> None:
    assert [(row.words, row.note) for row in rows_of(a_life())] == [
        ("make", "its handler raised 2x"),
        ("  render: waits for a worker", ""),
        ("  render #1 by w1", "failed: BAD"),
        ("  render: waits for another try", ""),
        ("  render: waits for a worker", ""),
        ("  render #2 by w2", ""),
    ]


@pytest.mark.parametrize(
    ("began", "ended", "drawn"),
    [
        (0, 40, "████████"),
        (10, 20, "  ██    "),
        (0, 0, "█       "),
        (40, 40, "       █"),
        (20, None, "    ███▶"),
        (40, None, "       ▶"),
    ],
)
def test_a_bar_spans_its_time(began: float, ended: float | None, drawn: str) -> None:
    row = Row("x", at(began), None if ended is None else at(ended), "finished")

    assert bar(row, at(0), at(40), 8) == drawn


def test_a_wait_is_drawn_thin() -> None:
    assert bar(Row("x", at(0), at(20), "wait"), at(0), at(40), 8) == "░░░░    "


def test_a_job_of_no_length_has_bars_all_the_same() -> None:
    assert bar(Row("x", NOON, NOON, "state"), NOON, NOON, 8).strip() == "█"


def test_a_pipe_gets_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    draw(Output(json=False), a_life(ended=False))

    out = capsys.readouterr().out
    assert out.startswith("j1  film  running  40.0 s\n")
    assert "▶" in out
    assert "\x1b" not in out
    assert "its handler raised 2x" in out


def test_a_person_gets_bars_that_fit_the_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    screen = Output(json=False)
    screen.live = True
    draw(screen, a_life())

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert all(len(line) <= 90 for line in lines)
    assert "░" in lines[2]


def test_names_that_a_terminal_would_obey_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    state = StateSpan(state="a\x1b[31m\nb", began_at=at(0), ended_at=at(1))
    line = Timeline(job_id="j", blueprint="b", status="finished", began_at=at(0), at=at(1), states=[state])
    draw(Output(json=False), line)

    assert "\\x1b[31m\\nb" in capsys.readouterr().out
