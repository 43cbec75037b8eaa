"""The stores on which a promise holds: each test that asks for `storage` runs on every one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import require_binary
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer(require_binary("redis-server"), appendonly=True) as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The setting that names an empty store."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        assert server.ask("FLUSHALL") == "+OK"
        return server.url
    return "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'jobs.db'}"


@pytest.fixture
def history(request: pytest.FixtureRequest, storage: str) -> str:
    """The setting that names a history for it: Redis alone has none of its own."""
    if not storage.startswith("redis:"):
        return ""
    server: PostgresServer = request.getfixturevalue("history_server")
    return server.place()
