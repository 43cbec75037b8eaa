"""A refactoring must not change what happens to a job: digests of its events, see `golden_trace.py`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(60)
def test_events_without_faults_and_around_power_cuts_equal_the_recorded_ones() -> None:
    command = [sys.executable, "tests/simulation/golden_trace.py", "--only", "calm", "crash"]
    compared = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert "calm: 12 of 12 equal" in compared.stdout
