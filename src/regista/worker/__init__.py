"""The performer's side: task functions, and ways to connect them to an orchestrator."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .context import TaskCancelled, TaskContext
from .tasks import Worker

if TYPE_CHECKING:
    from .remote import RemoteWorker as RemoteWorker
    from .running import run as run

__all__ = ["RemoteWorker", "TaskCancelled", "TaskContext", "Worker", "run"]

#: Resolved when they are first used: an orchestrator whose workers are its own never loads an HTTP client.
_LATE = {"RemoteWorker": ".remote", "run": ".running"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name], __name__), name)
