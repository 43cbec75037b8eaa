import json
import logging
import sys
from datetime import UTC

from regista.observe.logging import JsonLines, PrettyLines, zone


def record(level: int = logging.INFO, trace: bool = False) -> logging.LogRecord:
    made = logging.LogRecord("regista", level, "file.py", 1, "job %s begins", ("j1",), None)
    if trace:
        try:
            raise ValueError("boom")
        except ValueError:
            made.exc_info = sys.exc_info()
    made.created = 0.5
    made.job_id = "j1"
    made.action = "begin"
    return made


def test_a_json_line_carries_time_words_and_the_lines_own_fields() -> None:
    assert json.loads(JsonLines(UTC).format(record())) == {
        "at": "1970-01-01T00:00:00.500+00:00",
        "level": "INFO",
        "logger": "regista",
        "message": "job j1 begins",
        "job_id": "j1",
        "action": "begin",
    }


def test_times_are_shown_in_the_zone_that_is_set() -> None:
    assert '"at": "1970-01-01T01:00:00.500+01:00"' in JsonLines(zone("Europe/Madrid")).format(record())


def test_a_trace_stays_within_its_json_line() -> None:
    line = JsonLines(UTC).format(record(trace=True))

    assert "\n" not in line
    assert "ValueError: boom" in json.loads(line)["trace"]


def test_a_pretty_line_is_coloured_on_a_terminal_only() -> None:
    plain = PrettyLines(UTC, colour=False).format(record(logging.ERROR))

    assert plain == "00:00:00 error    job j1 begins job_id=j1"
    assert PrettyLines(UTC, colour=True).format(record(logging.ERROR)) == f"\033[31m{plain}\033[0m"


def test_what_is_logged_is_shown_and_never_obeyed() -> None:
    said = logging.makeLogRecord({"msg": "worker \x1b[2K\x9b31m\u202e", "worker_id": "\x07"})

    for line in (JsonLines(UTC).format(said), PrettyLines(UTC, colour=False).format(said)):
        assert not set(line) & set("\x1b\x9b\u202e\x07")
    assert json.loads(JsonLines(UTC).format(said))["message"] == "worker \x1b[2K\x9b31m\u202e"
