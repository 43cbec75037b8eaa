import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regista.cli.app import AppError, files_of, load_app

APP = """
from regista import StateMachineBlueprint, Worker

greet, worker = StateMachineBlueprint("greet"), Worker("crew")
again = greet
"""


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    """What an app leaves in the interpreter is taken out again."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_blueprints_and_workers_of_a_file_are_found_once(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)

    app = load_app(str(tmp_path / "app.py"))

    assert [blueprint.name for blueprint in app.blueprints] == ["greet"]
    assert [worker.name for worker in app.workers] == ["crew"]


def test_a_module_of_a_package_is_an_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "flows.py").write_text(APP)
    monkeypatch.chdir(tmp_path)

    assert [blueprint.name for blueprint in load_app("shop.flows").blueprints] == ["greet"]


def test_a_file_may_import_its_neighbours_and_have_the_name_of_a_library(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("from neighbour import greet, worker\n")
    (tmp_path / "neighbour.py").write_text(APP)

    app = load_app(str(tmp_path / "json.py"))

    assert len(app.need_blueprints()) == len(app.need_workers()) == 1
    assert files_of(str(tmp_path / "json.py")) == [tmp_path / "json.py", tmp_path / "neighbour.py"]


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        ("x = 1\ny = 1 / 0\n", 2, "ZeroDivisionError: division by zero"),
        ("def f(:\n", 1, "SyntaxError: "),
        ("\nraise SystemExit\n", 2, "SystemExit"),
        ("import nothing_like_it\n", 1, "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("from regista import Worker\n\nWorker(concurrency=0)\n", 3, "concurrency"),
    ],
)
def test_an_app_that_does_not_load_is_an_error_with_its_line(
    source: str, line: int, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source)

    with pytest.raises(AppError) as caught:
        load_app(str(path))

    assert str(caught.value).startswith(f"cannot use app {path}:{line}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.py", "expected a Python file, and there is none"),
        ("no.such.module", "No module named 'no'"),
        ("nosuchmodule", "there is neither of this name"),
        ("", "there is neither of this name"),
        ("app.py:gpu", "only `regista worker` takes APP:NAME; try app.py$"),
        ("./app.py:gpu", "only `regista worker` takes APP:NAME; try ./app.py$"),
    ],
)
def test_an_app_that_is_not_there_is_an_error_that_says_so(name: str, reason: str) -> None:
    with pytest.raises(AppError, match=reason):
        load_app(name)


def test_two_blueprints_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP + 'other = StateMachineBlueprint("greet")\n')

    with pytest.raises(AppError, match="two blueprints are named 'greet'"):
        load_app(str(tmp_path / "app.py"))


def test_what_a_command_needs_and_an_app_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("")
    app = load_app(str(tmp_path / "app.py"))

    with pytest.raises(AppError, match="expected a StateMachineBlueprint at module level"):
        app.need_blueprints()
    with pytest.raises(AppError, match="expected a Worker at module level"):
        app.need_workers()


def test_single_workers_are_picked_by_their_name_or_their_variables(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        'from regista import Worker\n\ngpu = Worker("big")\ncpu = Worker("small")\nnet = Worker("wide")\n'
    )
    app = load_app(str(tmp_path / "app.py"))

    assert app.pick_workers([]) == app.workers
    assert [worker.name for worker in app.pick_workers(["wide", "gpu", "big"])] == ["wide", "big"]
    with pytest.raises(AppError, match="no worker named 'huge'; its workers: big, small, wide"):
        app.pick_workers(["huge"])
