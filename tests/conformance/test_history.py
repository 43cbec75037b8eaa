from pathlib import Path

import pytest

from regista.history.memory import MemoryHistory
from regista.history.sqlite import SqliteHistory
from regista.testing.conformance.history import HistoryConformance, HistoryFactory


class TestMemoryHistory(HistoryConformance):
    reopens = False

    @pytest.fixture
    def history_factory(self) -> HistoryFactory:
        return MemoryHistory


class TestSqliteHistory(HistoryConformance):
    @pytest.fixture
    def history_factory(self, tmp_path: Path) -> HistoryFactory:
        return lambda: SqliteHistory(tmp_path / "history.db")
