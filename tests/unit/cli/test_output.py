import json
from datetime import UTC, datetime, timedelta

import pytest

from regista.cli.output import Screen, age, span


def test_a_table_in_a_pipe_is_aligned_text_without_colour(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(json=False).table(["id", "status"], [["a", "finished"], ["long-one", "failed"]])

    assert capsys.readouterr().out == "ID        STATUS\na         finished\nlong-one  failed\n"


def test_a_document_is_json_on_standard_output_and_notes_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(json=True)
    screen.note("beside")
    screen.document({"at": datetime(2026, 1, 1, tzinfo=UTC)})

    said = capsys.readouterr()
    assert json.loads(said.out) == {"at": "2026-01-01T00:00:00Z"}
    assert said.err == "beside\n"


def test_times_are_told_in_the_unit_that_fits() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)

    assert [span(s) for s in (-1, 0.04, 59, 90, 7200, 200_000)] == [
        "0 ms",
        "40 ms",
        "59.0 s",
        "2 min",
        "2 h",
        "2 d",
    ]
    assert age(now - timedelta(seconds=5), now) == "5.0 s"
    assert age(None) == "-"


def test_a_person_is_told_what_to_do_where_a_table_would_be_empty(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(json=False)
    screen.table(["id"], [], "start one")
    assert capsys.readouterr().out == "ID\n"  # a program counts lines

    screen.live = True
    screen.table(["id"], [], "start one")
    assert capsys.readouterr().out == "start one\n"
