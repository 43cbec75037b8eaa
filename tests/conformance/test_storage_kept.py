"""A repository with a payload store keeps every promise of a store, whatever lies elsewhere: here, everything."""

from pathlib import Path

import pytest

from regista.payloads.memory import MemoryPayloads
from regista.storage.memory import MemoryStorage
from regista.storage.sqlite.store import SqliteStorage
from regista.testing.conformance.storage import (
    PersistenceConformance,
    StorageConformance,
    StorageFactory,
)
from tests.repository_storage import repository_storage

#: Whatever takes more bytes than this is put away.
LIMIT = 2


class TestKeptStorage(StorageConformance):
    @pytest.fixture
    def open_storage(self) -> StorageFactory:
        return lambda clock: repository_storage(MemoryStorage(clock), MemoryPayloads(), LIMIT, clock)


class TestKeptPersistence(PersistenceConformance):
    @pytest.fixture
    def open_storage(self, tmp_path: Path) -> StorageFactory:
        payloads = MemoryPayloads()
        return lambda clock: repository_storage(
            SqliteStorage(tmp_path / "jobs.db", clock), payloads, LIMIT, clock
        )
