import shutil
from pathlib import Path

import pytest

from regista.clock import Clock
from regista.storage.base import StorageBackend
from regista.storage.memory import MemoryStorage
from regista.storage.sqlite.store import SqliteStorage
from regista.testing.conformance.storage import (
    PersistenceConformance,
    StorageConformance,
    StorageFactory,
)


class TestStorage(StorageConformance):
    @pytest.fixture(params=["memory", "sqlite"])
    def open_storage(self, request: pytest.FixtureRequest, tmp_path: Path) -> StorageFactory:
        return {
            "memory": lambda clock: MemoryStorage(clock),
            "sqlite": lambda clock: SqliteStorage(tmp_path / "jobs.db", clock),
        }[request.param]


class TestSqlitePersistence(PersistenceConformance):
    @pytest.fixture
    def open_storage(self, tmp_path: Path) -> StorageFactory:
        return lambda clock: SqliteStorage(tmp_path / "jobs.db", clock)


class TestSqliteCrash(TestSqlitePersistence):
    """The same, when nobody said goodbye: the next store finds the files as a crash leaves them."""

    async def leave(
        self, storage: StorageBackend, open_storage: StorageFactory, clock: Clock
    ) -> StorageBackend:
        assert isinstance(storage, SqliteStorage)
        there = storage.path.parent / "next"
        there.mkdir()
        for name in (storage.path.name, f"{storage.path.name}-wal"):
            shutil.copy(storage.path.with_name(name), there / name)
        return SqliteStorage(there / storage.path.name, clock)
