"""The stores on which a promise holds: each test that asks for `storage` runs on every one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import require_binary
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
def history(storage: str, tmp_path: Path) -> str:
    """The setting that names a history for it: Redis alone has none of its own."""
    return f"sqlite:{tmp_path / 'history.db'}" if storage.startswith("redis:") else ""
