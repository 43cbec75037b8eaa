"""Servers that many acceptance tests share."""

from collections.abc import Iterator

import pytest

from tests.conftest import Require
from tests.postgres_server import PostgresServer, serving


@pytest.fixture(scope="session")
def history_server(require: Require) -> Iterator[PostgresServer]:
    """The PostgreSQL that keeps the histories beside Redis."""
    yield from serving(require)
