"""Every example is a program: it runs, ends well, and says what it promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

#: Program and arguments → the line that must be in its output.
PROMISES = {
    ("quickstart.py", "Ada"): "finished Hello, Ada!",
    ("approval.py", "approve"): "500 €: finished, 500 € paid",
    ("approval.py", "reject"): "500 €: failed, no refund",
    ("demo.py",): "FINISHED: 4 of 4 legs, and nobody submitted it twice",
}


#: What the demo shows on its way: a retry, a fan-out, a person, a clock, a child.
SIGHTS = ("task_retried", "plan → review", "approval_given", "timer_fired", "child_finished")


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", PROMISES, ids=" ".join)
def test_example_runs_and_keeps_its_promise(command: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / command[0], *command[1:]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=50,
    )

    assert done.returncode == 0, done.stderr
    assert PROMISES[command] in done.stdout.splitlines()
    assert done.stderr == ""
    if command[0] == "demo.py":
        assert [sight for sight in SIGHTS if sight not in done.stdout] == []
        assert list(tmp_path.iterdir()) == []  # it cleans up after itself


def test_every_example_is_run() -> None:
    assert {command[0] for command in PROMISES} == {path.name for path in EXAMPLES.glob("*.py")}
