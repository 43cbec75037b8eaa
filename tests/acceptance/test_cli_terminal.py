"""What a person at a terminal sees."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import House

pytestmark = [pytest.mark.slow, pytest.mark.timeout(40)]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("house"))
    house.serve()
    house.start("worker", "app.py")
    house.until_logged("connected")
    yield house
    house.close()


def at_a_terminal(house: House, *command: str, **env: str) -> tuple[int, str]:
    """Run a command with a terminal as its standard output; exit code and all that was drawn."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "regista", *command],
        cwd=house.folder,
        env=house.env | {"TERM": "xterm-256color", "COLUMNS": "100"} | env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen, end = b"", time.monotonic() + 20
    while time.monotonic() < end:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    return process.wait(5), seen.decode()


def test_a_job_is_followed_live(house: House) -> None:
    code, seen = at_a_terminal(house, "jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait")

    assert code == 0, seen
    assert "\033[32m✓" in seen  # a state that is over, in green
    assert "done" in seen
    assert seen.replace("\r", "").splitlines()[-1] == '"Hello, Ada!"'
    assert "state_started" not in seen  # no plain lines beside the drawing


def test_a_job_that_asks_tells_how_to_answer(house: House) -> None:
    job_id = house.said("jobs", "run", "ask").strip()
    code, seen = at_a_terminal(house, "jobs", "watch", job_id, "--timeout", "1")

    assert code == 5
    assert "Really?" in seen
    assert f"regista jobs approve {job_id}" in seen


def test_lists_are_drawn_and_json_is_indented(house: House) -> None:
    house.said("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait")

    assert "\033[1m" in at_a_terminal(house, "jobs", "list")[1]
    assert "\033[32m" not in at_a_terminal(house, "jobs", "list", NO_COLOR="1")[1]
    assert '\r\n  "regista": "' in at_a_terminal(house, "version", "--json")[1]


def test_a_list_without_rows_says_what_to_do(house: House) -> None:
    assert "no job fits" in at_a_terminal(house, "jobs", "list", "--status", "cancelled")[1]


def test_the_doctor_marks_what_is_good_and_what_is_not(house: House) -> None:
    assert "✗" not in at_a_terminal(house, "doctor")[1]
    assert "✗" in at_a_terminal(house, "doctor", REGISTA_URL="http://127.0.0.1:9")[1]


def test_logs_are_lines_for_people(house: House, tmp_path: Path) -> None:
    code, seen = at_a_terminal(house, "worker", "missing.py")

    assert (code, seen.startswith("regista: cannot use app missing.py")) == (1, True)


def test_what_strangers_wrote_is_shown_and_never_obeyed(house: House) -> None:
    evil = "\x1b]0;TITLE\x07 \x9b31m \u202eturned"
    job_id = house.said("jobs", "run", "greet", "--input", json.dumps({"name": evil})).strip()
    commands = [
        ("jobs", "watch", job_id),
        ("jobs", "show", job_id),
        ("jobs", "show", job_id, "--json"),
        ("jobs", "run", evil),
    ]
    for command in commands:
        _, seen = at_a_terminal(house, *command)
        assert "TITLE" in seen, command
        assert not [each for each in ("\x1b]0;", "\x07", "\x9b", "\u202e") if each in seen], command
