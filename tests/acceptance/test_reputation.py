"""Reputation across instances and restarts, on real stores."""

import asyncio
from typing import Any

from regista import Config, OrchestratorEngine, PermanentError, Worker
from regista.maintenance.reputation import ReputationCalculator
from tests.acceptance.any_store import history, redis_server, storage
from tests.acceptance.serving import serving
from tests.redis_server import RedisServer
from tests.support import one_task

__all__ = ["history", "redis_server", "storage"]


def clumsy() -> Worker:
    worker = Worker("clumsy")

    @worker.task("work")
    def work(params: dict[str, Any]) -> None:
        raise PermanentError("dropped it")

    return worker


def shown(director: OrchestratorEngine) -> float | None:
    connected = director.dispatcher.find("clumsy")
    return None if connected is None else connected.worker.profile.reputation


async def _count(director: OrchestratorEngine) -> int:
    await director.recorder.drain()
    calculator = ReputationCalculator(director.storage, director.history, director.workers.set_reputation, 0)
    return (await calculator.run_once(director.clock.now())).done


async def test_failures_are_counted_on_every_store_and_outlive_a_restart(storage: str, history: str) -> None:
    options: dict[str, Any] = {"storage": storage, "history_database_uri": history}
    async with serving(one_task(), workers=[clumsy()], **options) as house:
        for _ in range(5):
            await house.director.run_job("script")
        assert await _count(house.director) == 1
        assert shown(house.director) == 0.5
        listed = (await house.get("/api/v1/workers/clumsy")).json
        assert listed["reputation"] == 0.5
    if storage == "memory":
        return
    async with serving(one_task(), workers=[clumsy()], **options) as house:
        assert shown(house.director) == 0.5


async def test_an_instance_hears_what_another_one_has_found_out(redis_server: RedisServer) -> None:
    assert redis_server.ask("FLUSHALL") == "+OK"

    here = OrchestratorEngine(redis_server.url, Config(instance_id="here"))
    there = OrchestratorEngine(redis_server.url, Config(instance_id="there"))
    here.add_worker(clumsy())
    async with here, there:
        assert await there.workers.set_reputation("clumsy", 0.5)
        for _ in range(100):
            if shown(here) == 0.5:
                break
            await asyncio.sleep(0.02)
        assert shown(here) == 0.5
