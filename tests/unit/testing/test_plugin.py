"""The pytest plugin, as a user's test run sees it."""

import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import regista
import regista.testing

pytest_plugins = ["pytester"]

INSTALLED = bool(entry_points(group="pytest11", name="regista"))

TEST = """
from regista import StateMachineBlueprint

hello = StateMachineBlueprint("hello")

@hello.handler_for("start", is_start=True)
def start(context, actions):
    actions.dispatch_task("greet", transitions={"success": "done"})

@hello.handler_for("done", is_end=True)
def done(context, actions):
    actions.set_result(context.state_history["greeting"])

def test_hello(orchestrator):
    orchestrator.register(hello)
    orchestrator.task("greet")(lambda params: {"greeting": "hi"})
    assert orchestrator.run("hello").result == "hi"

def test_clock(regista_clock):
    before = regista_clock.now()
    regista_clock.move(days=1)
    assert (regista_clock.now() - before).days == 1

def broken(graphs, events, jobs):
    raise AssertionError(f"{len(jobs)} job broke its promise")

def test_promises_are_checked_after_the_test(monkeypatch, orchestrator):
    orchestrator.register(hello)
    orchestrator.submit("hello")
    monkeypatch.setattr("regista.testing.orchestrator.check_history", broken)
"""


@pytest.mark.timeout(60)
def test_the_fixtures_work_and_the_promises_are_checked(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(regista.__file__).parents[1]))
    pytester.makepyfile(TEST)
    plugin = () if INSTALLED else ("-p", "regista.testing.plugin")
    result = pytester.runpytest_subprocess(*plugin, "-q")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*1 job broke its promise"])


@pytest.mark.timeout(60)
def test_the_plugin_loads_nothing_before_it_is_used(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(regista.__file__).parents[1]))
    code = (
        "import sys, regista.testing.plugin\n"
        "assert 'regista.orchestrator' not in sys.modules, 'the orchestrator was loaded'\n"
        "assert 'regista.testing.orchestrator' not in sys.modules\n"
    )
    assert pytester.run(sys.executable, "-c", code).ret == 0


def test_the_door_of_the_kit_resolves_every_name_and_no_other() -> None:
    door = regista.testing

    for name in door.__all__:
        assert getattr(door, name) is not None
    assert set(door.__all__) == {"Clock", "TestOrchestrator", "VirtualLoop", "invariants", "simulate"}
    with pytest.raises(AttributeError, match="nothing"):
        door.nothing  # noqa: B018
