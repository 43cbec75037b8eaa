"""An app: a Python file or `package.module` whose module-level blueprints and workers are taken."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from msgspec import Struct, field

from .. import StateMachineBlueprint, Worker
from ..errors import RegistaError
from ..serialization import safe_text


class AppError(RegistaError):
    """The app cannot be loaded, or lacks what the command needs; `path` and `line` say where."""

    code = "app_error"

    def __init__(self, app: str, reason: str, line: int | None = None) -> None:
        where = app if line is None else f"{app}:{line}"
        super().__init__(f"cannot use app {where}: {reason}")
        self.app = app
        self.line = line


class App(Struct, frozen=True):
    """What an app brings along, in the order in which it was written."""

    name: str
    blueprints: tuple[StateMachineBlueprint, ...]
    workers: tuple[Worker, ...]
    #: The first variable that holds a thing, by the thing's `id`.
    variables: dict[int, str] = field(default_factory=dict)

    def need_blueprints(self) -> tuple[StateMachineBlueprint, ...]:
        """Its blueprints, or AppError."""
        if not self.blueprints:
            raise AppError(self.name, "expected a StateMachineBlueprint at module level, found none")
        return self.blueprints

    def need_workers(self) -> tuple[Worker, ...]:
        """Its workers, or AppError."""
        if not self.workers:
            raise AppError(self.name, "expected a Worker at module level, found none")
        return self.workers

    def pick_workers(self, names: Sequence[str]) -> tuple[Worker, ...]:
        """The workers of these names (their own, or the variable's), or all; AppError for a wrong name."""
        found = self.need_workers()
        picked: list[Worker] = []
        for name in names:
            fits = [worker for worker in found if name in (worker.name, self.variables.get(id(worker)))]
            if not fits:
                have = ", ".join(dict.fromkeys(worker.name for worker in found))
                raise AppError(self.name, f"it has no worker named {name!r}; its workers: {have}")
            picked += [worker for worker in fits if worker not in picked]
        return tuple(picked) if names else found


def load_app(name: str) -> App:
    """Import the app. What it raises, or what is wrong with it, is an AppError that names the line."""
    refuse_absent(name)
    module = _import_file(name, Path(name)) if _is_file(name) else _import_module(name)
    found = _distinct(module)
    blueprints = tuple(thing for thing in found if isinstance(thing, StateMachineBlueprint))
    names = [blueprint.name for blueprint in blueprints]
    for twice in {each for each in names if names.count(each) > 1}:
        raise AppError(name, f"two blueprints are named {twice!r}")
    workers = tuple(thing for thing in found if isinstance(thing, Worker))
    variables = {id(value): variable for variable, value in reversed(vars(module).items())}
    return App(name, blueprints, workers, variables)


def refuse_absent(name: str) -> None:
    """AppError where no edit could help: there is no such file, or it is a name that only workers have."""
    if ":" in name and not Path(name).exists():
        whole = name.partition(":")[0]
        raise AppError(name, f"expected APP alone, as only `regista worker` takes APP:NAME; try {whole}")
    if _is_file(name) and not Path(name).is_file():
        raise AppError(name, "expected a Python file, and there is none")


def files_of(name: str) -> list[Path]:
    """The files that an app consists of, as far as it has been loaded: its own and what it imported.

    Installed packages and the standard library are not the app's: they do not lie below its directory.
    """
    first = Path(name).resolve() if _is_file(name) else None
    root = first.parent if first else Path.cwd()
    found = {first or root.joinpath(*name.split(".")).with_suffix(".py")}
    for module in list(sys.modules.values()):
        path = Path(getattr(module, "__file__", None) or "/").resolve()
        if path.suffix == ".py" and root in path.parents and not _installed(path):
            found.add(path)
    return sorted(found)


def _installed(path: Path) -> bool:
    """It came with an environment: nobody edits it."""
    return "site-packages" in path.parts or path.is_relative_to(sys.base_prefix)


def _distinct(module: ModuleType) -> list[object]:
    """The values of a module, each once: a second name for a thing is not a second thing."""
    return list({id(value): value for value in vars(module).values()}.values())


def _is_file(name: str) -> bool:
    return name.endswith(".py") or "/" in name


def _import_file(name: str, path: Path) -> ModuleType:
    """Like `python FILE`: its directory comes first on the path, so that its neighbours can be imported."""
    sys.path.insert(0, str(path.resolve().parent))
    # A module's name is free only if nothing else has it: an app may be called json.py.
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    module_name = f"_regista_app_{path.stem}" if taken else path.stem
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise AppError(name, "expected a Python file, that is, one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # before it runs: dataclasses and msgspec look their module up
    _guarded(name, lambda: spec.loader.exec_module(module))  # type: ignore[union-attr]
    return module


def _import_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.util.find_spec(name) if name else None
    except (ImportError, ValueError) as error:
        raise AppError(name, f"{type(error).__name__}: {error}") from error
    if found is None:
        raise AppError(name, "expected a Python file or package.module, and there is neither of this name")
    _guarded(name, lambda: importlib.import_module(name))
    return sys.modules[name]


def _guarded(name: str, load: Callable[[], object]) -> None:
    """Somebody else's code at its outermost turn: whatever it raises is an app that did not load."""
    try:
        load()
    except (Exception, SystemExit) as error:
        reason = error.msg if isinstance(error, SyntaxError) else safe_text(error)
        described = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        where, line = _place(error)
        app = name if where is None else where
        raise AppError(app, described, line) from error


def _place(error: BaseException) -> tuple[str | None, int | None]:
    """File and line of the innermost step through code that is not installed."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno
    ours = Path(__file__).parents[1]
    for step in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(step.filename)
        if path.is_file() and not _installed(path) and not path.is_relative_to(ours):
            return step.filename, step.lineno
    return None, None
