from collections.abc import Iterator
from itertools import count

import pytest

from regista.clock import Clock
from regista.storage.base import StorageBackend
from regista.testing.conformance.storage import PersistenceConformance, StorageConformance, StorageFactory
from tests.conftest import Require
from tests.redis_clock import HandMovedRedis
from tests.redis_server import RedisServer

_names = map("t{}".format, count(1))


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[RedisServer]:
    with RedisServer(require("redis-server"), appendonly=True) as server:
        yield server


class TestRedisStorage(StorageConformance):
    @pytest.fixture
    def open_storage(self, server: RedisServer) -> StorageFactory:
        return on_a_place_of_its_own(server)


class TestRedisPersistence(PersistenceConformance):
    shared = True

    @pytest.fixture
    def open_storage(self, server: RedisServer) -> StorageFactory:
        return on_a_place_of_its_own(server)


class TestRedisCrash(TestRedisPersistence):
    """The same, when the server is killed in between."""

    async def leave(
        self, storage: StorageBackend, open_storage: StorageFactory, clock: Clock
    ) -> StorageBackend:
        await storage.stop()
        self.server.kill()
        self.server.start()
        return open_storage(clock)

    @pytest.fixture(autouse=True)
    def _victim(self, server: RedisServer) -> None:
        self.server = server


def on_a_place_of_its_own(server: RedisServer) -> StorageFactory:
    namespace = next(_names)
    return lambda clock: HandMovedRedis(server.url, clock, namespace=namespace)
