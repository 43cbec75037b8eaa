from collections.abc import Collection

import pytest

from regista.errors import OperatorsOnly, WorkerNotFound
from regista.model import Worker as WorkerRecord
from regista.storage.memory import MemoryStorage
from tests.services_kit import ADA, OPS, actions_of, orchestrator

ELSEWHERE = WorkerRecord(id="w-1", skills=("work",), capacity=1, instance="other")


class Counted(MemoryStorage):
    lists = 0

    async def workers(
        self, ids: Collection[str] | None = None, *, lapsed_only: bool = False
    ) -> list[WorkerRecord]:
        self.lists += ids is None and not lapsed_only
        return await super().workers(ids, lapsed_only=lapsed_only)


async def test_every_client_sees_the_workers() -> None:
    async with orchestrator() as director:
        await director.storage.register(ELSEWHERE, 60.0)
        listed = await director.services.workers.list_all(ADA)
        assert [each.facts.worker.id for each in listed] == ["w-1"]
        assert (await director.services.workers.get(ADA, "w-1")).facts.state == "ready"
        with pytest.raises(WorkerNotFound):
            await director.services.workers.get(ADA, "absent")


async def test_one_worker_is_read_without_all_others() -> None:
    storage = Counted()
    async with orchestrator(storage=storage) as director:
        await storage.register(ELSEWHERE, 60.0)
        before = storage.lists
        await director.services.workers.get(ADA, "w-1")
        assert storage.lists == before


async def test_only_an_operator_drains_a_worker_and_that_is_recorded() -> None:
    async with orchestrator() as director:
        workers, storage = director.services.workers, director.storage
        await storage.register(ELSEWHERE, 60.0)
        with pytest.raises(OperatorsOnly):
            await workers.drain(ADA, "w-1")
        assert (await workers.drain(OPS, "w-1")).facts.state == "draining"
        assert (await workers.drain(OPS, "w-1", on=False)).facts.state == "ready"
        with pytest.raises(WorkerNotFound):
            await workers.drain(OPS, "absent")
        assert await actions_of(storage, OPS) == [("worker.undrain", "w-1"), ("worker.drain", "w-1")]
        assert await actions_of(storage, ADA) == []
