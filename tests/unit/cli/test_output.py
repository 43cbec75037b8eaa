import io
import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from regista.cli.errors import UsageError, tell
from regista.cli.output import Output, age, shown, span
from regista.terminal import escape_control_chars


def test_a_table_in_a_pipe_is_aligned_text_without_colour(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=False).table(["id", "status"], [["a", "finished"], ["long-one", "failed"]])

    assert capsys.readouterr().out == "ID        STATUS\na         finished\nlong-one  failed\n"


def test_a_document_is_json_on_standard_output_and_notes_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Output(json=True)
    screen.notice("beside")
    screen.json_document({"at": datetime(2026, 1, 1, tzinfo=UTC)})

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
    screen = Output(json=False)
    screen.table(["id"], [], "start one")
    assert capsys.readouterr().out == "ID\n"  # a program counts lines

    screen.live = True
    screen.table(["id"], [], "start one")
    assert capsys.readouterr().out == "start one\n"


#: A colour, a title, C1, an erased line, a question to the terminal, a turned direction, a bell, hidden text.
EVIL = "\x1b[31mRED \x1b]0;TITLE\x07 \x9b31m \r\x1b[2K\x1b[1A \x1b[5n \u202eRTL\u2066 \u200b\ufeff \x7f\x85\x00 \U000e0041"
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ufeff\U000e0041]")


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


def test_whatever_a_terminal_would_obey_is_written_out() -> None:
    assert escape_control_chars("\x1b[31m\x9b\x7f\r\u202e\ud800") == "\\x1b[31m\\x9b\\x7f\\r\\u202e\\ud800"
    assert (
        escape_control_chars("tab\t, line\n, grün 日本 👩\u200d💻 می\u200cخواهم")
        == "tab\t, line\n, grün 日本 👩\u200d💻 می\u200cخواهم"
    )
    assert escape_control_chars("one\nrow\tmore", one_line=True) == "one\\nrow\\tmore"
    assert escape_control_chars(escape_control_chars(EVIL)) == escape_control_chars(EVIL)
    assert not _OBEYED.search(escape_control_chars(EVIL))


@pytest.mark.parametrize("live", [True, False])
def test_no_way_to_speak_lets_control_characters_through(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = (Terminal(), Terminal()) if live else (io.StringIO(), io.StringIO())
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setenv("TERM", "dumb")  # nothing is drawn that would have to be told apart
    screen = Output(json=False)
    screen.line(EVIL)
    screen.notice(EVIL)
    screen.check_line(False, EVIL)
    screen.table(["id", "message"], [["1", EVIL + "\n2  made up"]])
    screen.line(shown({EVIL: EVIL}))
    tell(UsageError(EVIL), debug=True)

    assert not _OBEYED.search(out.getvalue() + err.getvalue())
    assert "\n2  made up" not in out.getvalue()


def test_json_on_a_terminal_is_harmless_and_means_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    Output(json=True).json_document({EVIL: [EVIL]})
    document = out.getvalue()
    Output(json=True).json_line({"x": EVIL})
    record = out.getvalue().removeprefix(document)

    assert not _OBEYED.search(document + record)
    assert json.loads(document) == {EVIL: [EVIL]}
    assert json.loads(record) == {"x": EVIL}


def test_json_in_a_pipe_is_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=True).json_line({"x": "\x9b\u202e"})

    assert capsys.readouterr().out == '{"x":"\x9b\u202e"}\n'
