"""Regista: a durable job orchestrator. A director follows a script and hands work to performers.

Names are resolved when they are first used, so `import regista` costs next to nothing and a process that
only works (`regista.worker`) never loads the orchestrator.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

#: Every public name and the module where it lives.
_HOMES = {
    # Directing
    "OrchestratorEngine": "regista.orchestrator",
    "Submission": "regista.engines.base",
    "Config": "regista.config",
    # Asking for it
    "Client": "regista.client",
    "SyncClient": "regista.client",
    "Connection": "regista.config",
    # Writing the script
    "StateMachineBlueprint": "regista.blueprint",
    "JobContext": "regista.blueprint",
    "ActionFactory": "regista.blueprint",
    "AsyncDictStore": "regista.blueprint",
    "RetryPolicy": "regista.model",
    "load_blueprints": "regista.blueprint",
    # Performing
    "Worker": "regista.worker",
    "TaskContext": "regista.worker",
    "TaskFiles": "regista.payloads.task_files",
    "RemoteWorker": "regista.worker",
    "WorkerConfig": "regista.config",
    "TransientError": "regista.errors",
    "PermanentError": "regista.errors",
    "InvalidInputError": "regista.errors",
    # What comes back
    "Job": "regista.model",
    "JobStatus": "regista.model",
    "Task": "regista.model",
    "TaskResult": "regista.model",
    "Event": "regista.model",
    "EventType": "regista.model",
    "ClientConfig": "regista.model",
    "RegistaError": "regista.errors",
    "BlueprintNotFound": "regista.errors",
    "JobNotFound": "regista.errors",
    "JobAlreadyTerminal": "regista.errors",
    "IdempotencyConflict": "regista.errors",
    "QuotaExceeded": "regista.errors",
    "ApprovalConflict": "regista.errors",
    "NotQuarantined": "regista.errors",
    "ApiError": "regista.errors",
    "Unreachable": "regista.errors",
    "StorageUnavailable": "regista.errors",
    # Keeping it
    "StorageBackend": "regista.storage.base",
    "MemoryStorage": "regista.storage.memory",
    "SqliteStorage": "regista.storage.sqlite.store",
    "HistoryStorage": "regista.history.base",
}

__all__ = ["__version__", *_HOMES]

#: The same for names that need an extra. They are not in `__all__`: a star would ask for all of them.
_HOMES |= {
    "RedisStorage": "regista.storage.redis.store",
    "PostgresHistory": "regista.history.postgres",
    "S3Service": "regista.payloads.s3",
}
_EXTRAS = {"RedisStorage": "redis", "PostgresHistory": "postgres", "S3Service": "s3"}

# The same for type checkers, which do not run `__getattr__`. `X as X` is how they are told "exported".
if TYPE_CHECKING:
    from .blueprint import ActionFactory as ActionFactory
    from .blueprint import AsyncDictStore as AsyncDictStore
    from .blueprint import JobContext as JobContext
    from .blueprint import StateMachineBlueprint as StateMachineBlueprint
    from .blueprint import load_blueprints as load_blueprints
    from .client import Client as Client
    from .client import SyncClient as SyncClient
    from .config import Config as Config
    from .config import Connection as Connection
    from .config import WorkerConfig as WorkerConfig
    from .engines.base import Submission as Submission
    from .errors import ApiError as ApiError
    from .errors import ApprovalConflict as ApprovalConflict
    from .errors import BlueprintNotFound as BlueprintNotFound
    from .errors import IdempotencyConflict as IdempotencyConflict
    from .errors import InvalidInputError as InvalidInputError
    from .errors import JobAlreadyTerminal as JobAlreadyTerminal
    from .errors import JobNotFound as JobNotFound
    from .errors import NotQuarantined as NotQuarantined
    from .errors import PermanentError as PermanentError
    from .errors import QuotaExceeded as QuotaExceeded
    from .errors import RegistaError as RegistaError
    from .errors import StorageUnavailable as StorageUnavailable
    from .errors import TransientError as TransientError
    from .errors import Unreachable as Unreachable
    from .history.base import HistoryStorage as HistoryStorage
    from .history.postgres import PostgresHistory as PostgresHistory
    from .model import ClientConfig as ClientConfig
    from .model import Event as Event
    from .model import EventType as EventType
    from .model import Job as Job
    from .model import JobStatus as JobStatus
    from .model import RetryPolicy as RetryPolicy
    from .model import Task as Task
    from .model import TaskResult as TaskResult
    from .orchestrator import OrchestratorEngine as OrchestratorEngine
    from .payloads.s3 import S3Service as S3Service
    from .payloads.task_files import TaskFiles as TaskFiles
    from .storage.base import StorageBackend as StorageBackend
    from .storage.memory import MemoryStorage as MemoryStorage
    from .storage.redis.store import RedisStorage as RedisStorage
    from .storage.sqlite.store import SqliteStorage as SqliteStorage
    from .worker import RemoteWorker as RemoteWorker
    from .worker import TaskContext as TaskContext
    from .worker import Worker as Worker


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regista' has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if name not in _EXTRAS:
            raise
        extra = _EXTRAS[name]
        words = f"regista.{name} needs the {extra} extra (pip install 'regista[{extra}]')"
        raise ImportError(f"{words}: no module named {error.name}", name=error.name) from None
    globals()[name] = value  # the next use finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
