"""The worker's side: task functions, and ways to connect them to an orchestrator."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sdk.context import TaskCancelled as TaskCancelled
    from .sdk.context import TaskContext as TaskContext
    from .sdk.main import run as run
    from .sdk.remote import RemoteWorker as RemoteWorker
    from .sdk.tasks import Worker as Worker

__all__ = ["RemoteWorker", "TaskCancelled", "TaskContext", "Worker", "run"]

#: Name → its module. Loaded at first use: an orchestrator whose workers are its own never loads an HTTP client.
_MODULES = {
    "RemoteWorker": ".sdk.remote",
    "TaskCancelled": ".sdk.context",
    "TaskContext": ".sdk.context",
    "Worker": ".sdk.tasks",
    "run": ".sdk.main",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name], __package__), name)
