from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from regista.storage.redis.store import RedisStorage
from tests.conftest import Require
from tests.redis_server import RedisServer

#: Makes a store on a namespace of the test's own.
Open = Callable[..., RedisStorage]

_names = map("u{}".format, count(1))


@pytest.fixture(scope="session")
def server(require: Require) -> Iterator[RedisServer]:
    """One that stays up; a test that stops it starts one of its own."""
    with RedisServer(require("redis-server")) as server:
        yield server


@pytest.fixture
def mortal(require: Require) -> Iterator[RedisServer]:
    """One that a test may kill: it keeps what it acknowledged."""
    with RedisServer(require("redis-server"), appendonly=True) as server:
        yield server


@pytest.fixture
def namespace() -> str:
    return next(_names)


@pytest.fixture
def open_store(server: RedisServer, namespace: str) -> Open:
    def make(url: str = server.url, **options: Any) -> RedisStorage:
        return RedisStorage(url, **{"namespace": namespace, **options})

    return make
