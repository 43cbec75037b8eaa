import asyncio

from regista.model import Task
from regista.model import Worker as WorkerRecord
from regista.storage.memory import MemoryStorage
from tests.services_kit import ADA, BOB, OPS, orchestrator
from tests.support import one_task


class Together(MemoryStorage):
    """Answers questions about workers only when several are asked at the same time."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._all_here = asyncio.Barrier(number)
        self.armed = False

    async def held_by(self, worker_id: str) -> list[Task]:
        if self.armed:
            async with asyncio.timeout(5):
                await self._all_here.wait()
        return await super().held_by(worker_id)


def elsewhere(number: int) -> WorkerRecord:
    return WorkerRecord(id=f"w-{number}", skills=("work",), capacity=1, instance="other")


async def test_a_client_counts_its_own_tasks_and_an_operator_all() -> None:
    async with orchestrator(one_task()) as director:
        for client in ("ada", "ada", "bob"):
            await director.submit("script", client=client)

        async def waiting(caller: object) -> int:
            queues = await director.services.queues.list_all(caller)  # type: ignore[arg-type]
            return queues["work"].waiting

        assert [await waiting(caller) for caller in (ADA, BOB, OPS)] == [2, 1, 3]
        assert (await director.services.queues.totals(BOB)).tasks == {"waiting": 1, "running": 0}


async def test_workers_of_other_instances_are_asked_about_all_at_once() -> None:
    storage = Together(5)
    async with orchestrator(one_task(), storage=storage) as director:
        for number in range(5):
            await storage.register(elsewhere(number), 60.0)
        storage.armed = True
        totals = await director.services.queues.totals(OPS)
        assert totals.workers == {"total": 5, "ready": 5}
        queues = await director.services.queues.list_all(OPS)
        assert len(queues["work"].workers) == 5
