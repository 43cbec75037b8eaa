"""What every store must do: one test per promise in `regista.storage.base`.

A backend is held to it by a subclass with one fixture::

    class TestMyStorage(StorageConformance):
        @pytest.fixture
        def open_storage(self, tmp_path):
            return lambda clock: MyStorage(tmp_path / "jobs", clock)

A backend that keeps what it acknowledged over a restart subclasses `PersistenceConformance` as well.
"""

import pytest

from .commits import CommitPromises
from .counters import CounterPromises
from .deadlines import DeadlinePromises
from .fences import FencePromises
from .kit import ManualClock, StorageFactory
from .life import LifePromises
from .messages import MessagePromises
from .outbox import OutboxPromises
from .persistence import PersistenceConformance
from .ready import ReadyPromises
from .shelves import ShelfPromises
from .tasks import TaskPromises
from .workers import WorkerPromises

__all__ = ["ManualClock", "PersistenceConformance", "StorageConformance", "StorageFactory"]


class StorageConformance(
    LifePromises,
    CommitPromises,
    FencePromises,
    ReadyPromises,
    TaskPromises,
    DeadlinePromises,
    MessagePromises,
    WorkerPromises,
    OutboxPromises,
    ShelfPromises,
    CounterPromises,
):
    """The suite for every store. `open_storage` makes one on a place of its own, by the clock given."""

    @pytest.fixture
    def open_storage(self) -> StorageFactory:
        """Supplied by the subclass."""
        raise NotImplementedError
