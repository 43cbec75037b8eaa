"""What every test can use: `require(...)` for things that a machine may lack, and the loud word about it."""

import os
import shutil
import signal
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes says nothing on a busy machine; each test has its own timeout already.
settings.register_profile("regista", deadline=None, print_blob=True)
settings.load_profile("regista")

# A shell starts what runs in its background with ctrl-C ignored, and every child of ours would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: What `require` hands to a test: the name of a binary in, its path out.
Require = Callable[[str], str]


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def require_binary(name: str) -> str:
    """The path of the program `name`. Where it is missing: a skip at home, a failure in CI."""
    if path := shutil.which(name):
        return path
    if in_ci():
        pytest.fail(f"{name} is missing, and in CI nothing may be: add it to scripts/install-system")
    pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="session")
def require() -> Require:
    """`require("dot")` in a test or a fixture that cannot do without that program."""
    return require_binary


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Let a report travel from one process to another though a test has logged half a character."""
    return _writable((yield))


def _writable(said: Any) -> Any:
    if isinstance(said, str):
        return said.encode(errors="backslashreplace").decode()
    if isinstance(said, dict):
        return {name: _writable(each) for name, each in said.items()}
    if isinstance(said, (list, tuple)):
        return type(said)(_writable(each) for each in said)
    return said


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost, so that it comes after every other summary
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Say loudly what was not tested: a skip that nobody reads is a hole that nobody sees."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    reasons: dict[str, int] = {}
    for report in skipped:
        where_and_why = report.longrepr
        reason = where_and_why[2] if isinstance(where_and_why, tuple) else str(where_and_why)
        reason = reason.removeprefix("Skipped: ")
        reasons[reason] = reasons.get(reason, 0) + 1
    terminalreporter.section("NOT TESTED HERE", sep="!", red=True, bold=True)
    for reason, count in sorted(reasons.items()):
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.write_line(f"{tests} skipped: {reason}", red=True)
