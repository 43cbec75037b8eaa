from collections.abc import Iterator

import pytest

from regista.history.postgres import PostgresHistory
from regista.testing.conformance.history import HistoryConformance, HistoryFactory
from tests.conftest import Require
from tests.postgres_server import PostgresServer, serving


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[PostgresServer]:
    yield from serving(require)


class TestPostgresHistory(HistoryConformance):
    @pytest.fixture
    def history_factory(self, server: PostgresServer) -> HistoryFactory:
        uri = server.place()
        return lambda: PostgresHistory(uri)
