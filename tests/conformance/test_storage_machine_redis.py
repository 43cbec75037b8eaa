"""The same random calls on a real Redis, checked against the same naive model."""

import os
from collections.abc import Iterator
from itertools import count
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings

from regista.storage.base import StorageBackend
from tests.conftest import Require
from tests.redis_clock import HandMovedRedis
from tests.redis_server import RedisServer

from .test_storage_machine import StorageMachine

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"


class RedisMachine(StorageMachine):
    """One store: whatever it answers is compared with what the model knows."""

    server: ClassVar[RedisServer]
    namespaces: ClassVar[Iterator[int]] = count(1)

    def __init__(self) -> None:
        self.namespace = f"m{next(self.namespaces)}"
        super().__init__()

    def _open(self) -> tuple[StorageBackend, ...]:
        store = HandMovedRedis(self.server.url, self.clock, namespace=self.namespace)
        self.runner.run(store.start())
        return (store,)

    def start_anew(self, crash: bool) -> None:
        """Another orchestrator comes before or after ours has gone. The store is elsewhere: nothing changes."""
        (old,) = self.stores
        if crash:
            self.stores = self._open()
        self.runner.run(old.stop())
        if not crash:
            self.stores = self._open()


@pytest.fixture(scope="module", autouse=True)
def server(require: Require) -> Iterator[None]:
    with RedisServer(require("redis-server")) as RedisMachine.server:
        yield


RedisMachine.TestCase.settings = settings(
    max_examples=1000 if LONG else 40,
    stateful_step_count=80 if LONG else 40,
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestRedisMachine = pytest.mark.slow(pytest.mark.timeout(3600 if LONG else 120)(RedisMachine.TestCase))
