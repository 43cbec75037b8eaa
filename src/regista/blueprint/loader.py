"""Loader: every blueprint of a directory (`BLUEPRINTS_DIR`)."""

import importlib
import sys
from itertools import count
from pathlib import Path
from types import ModuleType, TracebackType

from ..errors import BlueprintLoadError
from ..serialization import safe_text
from .blueprint import StateMachineBlueprint

#: Each load gets a package of its own, so that nothing of an earlier load is seen by it.
_loads = count(1)


def load_blueprints(directory: str | Path) -> list[StateMachineBlueprint]:
    """Import every `*.py` (but `__init__.py` and `_*.py`), sorted, and take its module-level blueprints.

    Files may share code by relative imports (`from ._common import ...`). The first file that fails stops
    the load with its path and line; two blueprints of one name do, too. Nothing is validated here.
    """
    folder = Path(directory).resolve()
    if not folder.is_dir():
        raise BlueprintLoadError(str(directory), None, "expected a directory, got none")
    package = _package(folder)
    found: dict[str, tuple[StateMachineBlueprint, Path]] = {}
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith("_") or not path.is_file():
            continue
        for blueprint in _blueprints(_import(package, path)):
            known, first = found.setdefault(blueprint.name, (blueprint, path))
            if known is not blueprint:
                reason = f"a blueprint named {blueprint.name!r} is in {first} already"
                raise BlueprintLoadError(str(path), None, reason)
    return [blueprint for blueprint, _ in found.values()]


def _package(folder: Path) -> str:
    """A package without code whose submodules are the files of the folder."""
    package = ModuleType(f"_regista_blueprints_{next(_loads)}")
    package.__path__ = [str(folder)]
    sys.modules[package.__name__] = package
    importlib.invalidate_caches()
    return package.__name__


def _import(package: str, path: Path) -> ModuleType:
    if "." in path.stem:
        raise BlueprintLoadError(str(path), None, "expected a file name with one dot")
    try:
        return importlib.import_module(f"{package}.{path.stem}")
    except (Exception, SystemExit) as error:
        # User code: whatever it raises means that the file was not loaded.
        reason = error.msg if isinstance(error, SyntaxError) else safe_text(error)
        described = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        raise BlueprintLoadError(str(path), _line(error, str(path)), described) from error


def _line(error: BaseException, path: str) -> int | None:
    """The deepest line of that file which the error passed."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    line = None
    step: TracebackType | None = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == path:
            line = step.tb_lineno
        step = step.tb_next
    return line


def _blueprints(module: ModuleType) -> list[StateMachineBlueprint]:
    return [value for value in vars(module).values() if isinstance(value, StateMachineBlueprint)]
