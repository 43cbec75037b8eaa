from collections.abc import Iterator
from itertools import count
from random import Random

import pytest

from regista.clock import Clock
from regista.model import Change, TaskWrite
from regista.storage.base import StorageBackend
from regista.storage.memory import MemoryStorage
from regista.testing.conformance.storage import PersistenceConformance, StorageConformance, StorageFactory
from regista.testing.conformance.storage.kit import (
    APPLIED,
    PARKED,
    START,
    ManualClock,
    at,
    commit,
    make_job,
    make_task,
    make_worker,
    running,
    write,
)
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


@pytest.mark.parametrize("seed", range(8))
async def test_tasks_are_offered_in_the_same_order_as_by_memory(server: RedisServer, seed: int) -> None:
    chance, clock = Random(seed), ManualClock(START)

    def some_job(number: int) -> Change:
        tasks = (
            make_task(
                f"job-{number}",
                index,
                type=chance.choice("xyz"),
                client=chance.choice("abcde"),
                priority=chance.choice([0.0, 0.0, 1.0, -1.0]),
                queued_at=at(chance.randint(0, 90)),
            )
            for index in range(chance.randint(1, 6))
        )
        job = make_job(f"job-{number}", **PARKED)
        return write(job, tasks=tuple(TaskWrite(task) for task in tasks))

    memory, redis = MemoryStorage(clock), on_a_place_of_its_own(server)(clock)
    async with running(memory), running(redis):
        for step in range(40):
            if chance.random() < 0.5:
                change = some_job(step)
                assert await commit(memory, change) == await commit(redis, change) == [APPLIED]
            else:
                lanes = [
                    make_task(type=kind).queue_key for kind in chance.sample("xyz", chance.randint(1, 3))
                ]
                asked = (make_worker(session=3), lanes, chance.randint(1, 7), at(step))
                assert await memory.claim_tasks(*asked) == await redis.claim_tasks(*asked)
            assert await memory.queue_status() == await redis.queue_status()
