"""A store whose jobs and tasks are read and written by a JobRepository, for suites that need a whole store."""

from collections.abc import Callable
from typing import Any, cast

from regista.clock import Clock
from regista.engines.base import EngineObserver
from regista.engines.native.repository import JobRepository
from regista.model import Task
from regista.payloads.base import FetchFailure, PayloadStore
from regista.payloads.offload import Offloader
from regista.payloads.records import RecordOffloader
from regista.storage.base import StorageBackend

_OF_REPOSITORY = frozenset(
    {
        "commit",
        "load",
        "tasks_of",
        "get",
        "claim_ready",
        "claim_tasks",
        "held_by",
        "stranded",
        "messages",
    }
)


class RepositoryStorage:
    """The repository's methods, and the store's own for everything else."""

    def __init__(
        self,
        storage: StorageBackend,
        payloads: PayloadStore,
        limit: int,
        clock: Clock,
        observer: EngineObserver | None = None,
        on_broken_payload: Callable[[Task, FetchFailure], None] = lambda task, why: None,
    ) -> None:
        self.storage = storage
        self.offloader = RecordOffloader(Offloader(payloads, limit, clock))
        self.repository = JobRepository(storage, clock, self.offloader, observer, on_broken_payload)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.repository if name in _OF_REPOSITORY else self.storage, name)


def repository_storage(
    storage: StorageBackend, payloads: PayloadStore, limit: int, clock: Clock
) -> StorageBackend:
    """The same, typed as a store."""
    return cast(StorageBackend, RepositoryStorage(storage, payloads, limit, clock))
