"""A store with a payload store behind it keeps every promise of a store, whatever lies elsewhere: here, everything."""

from pathlib import Path

import pytest

from regista.payloads.memory import MemoryPayloads
from regista.payloads.records import keep_records
from regista.storage.memory import MemoryStorage
from regista.storage.sqlite import SqliteStorage
from regista.testing.conformance.storage import (
    PersistenceConformance,
    StorageConformance,
    StorageFactory,
)

#: Whatever takes more bytes than this is put away.
LIMIT = 2


class TestKeptStorage(StorageConformance):
    @pytest.fixture
    def open_storage(self) -> StorageFactory:
        return lambda clock: keep_records(MemoryStorage(clock), MemoryPayloads(), LIMIT, clock)


class TestKeptPersistence(PersistenceConformance):
    @pytest.fixture
    def open_storage(self, tmp_path: Path) -> StorageFactory:
        payloads = MemoryPayloads()
        return lambda clock: keep_records(SqliteStorage(tmp_path / "jobs.db", clock), payloads, LIMIT, clock)
