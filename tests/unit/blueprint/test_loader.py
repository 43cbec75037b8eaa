"""Loader: every blueprint of a directory."""

from pathlib import Path
from textwrap import dedent

import pytest

from regista.blueprint import load_blueprints
from regista.errors import BlueprintLoadError

HEAD = "from regista.blueprint import StateMachineBlueprint\n"
GOOD = HEAD + dedent(
    """
    bp = StateMachineBlueprint({name!r})

    @bp.handler_for("start", is_start=True)
    async def start(context, actions):
        actions.transition_to("done")

    @bp.handler_for("done", is_end=True)
    async def done(context, actions):
        pass
    """
)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def failure(folder: Path) -> BlueprintLoadError:
    with pytest.raises(BlueprintLoadError) as caught:
        load_blueprints(folder)
    return caught.value


def test_blueprints_are_found_in_the_order_of_their_files(tmp_path: Path) -> None:
    write(tmp_path, "b.py", GOOD.format(name="two"))
    write(tmp_path, "a-1.py", GOOD.format(name="one") + "also = bp\nother = StateMachineBlueprint('more')\n")
    write(tmp_path, "__init__.py", "raise RuntimeError")
    write(tmp_path, "_helper.py", "raise RuntimeError")
    write(tmp_path, "notes.txt", "no Python")
    found = load_blueprints(str(tmp_path))
    assert [bp.name for bp in found] == ["one", "more", "two"]


def test_sources_of_loaded_files_can_be_read(tmp_path: Path) -> None:
    write(tmp_path, "a.py", GOOD.format(name="one"))
    [bp] = load_blueprints(tmp_path)
    bp.validate()
    assert bp.graph.states["start"].targets == frozenset({"done"})


def test_files_may_share_code_by_relative_imports_and_nothing_is_loaded_twice(tmp_path: Path) -> None:
    write(tmp_path, "_common.py", "NAME = 'shared'\n")
    write(tmp_path, "z.py", HEAD + "from ._common import NAME\nbp = StateMachineBlueprint(NAME)\n")
    write(tmp_path, "a.py", "from .z import bp\n")
    assert [bp.name for bp in load_blueprints(tmp_path)] == ["shared"]


def test_each_load_is_fresh(tmp_path: Path) -> None:
    write(tmp_path, "a.py", GOOD.format(name="one"))
    [first], [second] = load_blueprints(tmp_path), load_blueprints(tmp_path)
    assert first is not second


def test_two_directories_may_have_files_of_the_same_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "a.py", GOOD.format(name=name))
    assert [bp.name for name in ("one", "two") for bp in load_blueprints(tmp_path / name)] == ["one", "two"]


def test_an_exception_names_the_line_of_the_file_and_not_of_the_library(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.py", HEAD + "\ndef make():\n    StateMachineBlueprint('not a name')\n\nmake()\n"
    )
    error = failure(tmp_path)
    assert (error.path, error.line) == (str(path), 4)
    assert f"{path}:4: BlueprintInvalid: blueprint 'not a name' is not valid" in str(error)


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "x = 1\ny = (\n")
    error = failure(tmp_path)
    assert error.line == 2
    assert "SyntaxError" in str(error)


def test_a_syntax_error_in_a_helper_names_the_import(tmp_path: Path) -> None:
    write(tmp_path, "_helper.py", "y = (\n")
    path = write(tmp_path, "a.py", "x = 1\nfrom . import _helper\n")
    error = failure(tmp_path)
    assert (error.path, error.line) == (str(path), 2)


def test_a_file_that_exits_is_a_file_that_did_not_load(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "import sys\nsys.exit()\n")
    error = failure(tmp_path)
    assert error.line == 2
    assert "SystemExit" in str(error)


def test_two_blueprints_of_one_name_are_refused_with_both_files(tmp_path: Path) -> None:
    first = write(tmp_path, "a.py", GOOD.format(name="same"))
    second = write(tmp_path, "b.py", GOOD.format(name="same"))
    said = str(failure(tmp_path))
    assert str(first) in said
    assert str(second) in said
    assert "'same'" in said


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    assert "expected a directory" in str(failure(tmp_path / "nowhere"))


def test_a_file_name_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "a.b.py", "")
    assert "one dot" in str(failure(tmp_path))


def test_an_error_that_cannot_be_printed_names_its_file_too(tmp_path: Path) -> None:
    write(
        tmp_path, "a.py", "class Odd(Exception):\n    def __str__(self): return self.missing\n\nraise Odd\n"
    )
    error = failure(tmp_path)
    assert error.line == 4
    assert "a Odd that cannot be printed" in str(error)
