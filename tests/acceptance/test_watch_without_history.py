"""Who watches a job sees it to its end, though the history is away meanwhile."""

import asyncio
from typing import Any

from regista import Client, Config, OrchestratorEngine, Worker
from regista.errors import HistoryUnavailable
from regista.history.memory import MemoryHistory
from regista.model import EventType
from tests.support import one_task


class Absent(MemoryHistory):
    """A history that is away while it is told to be."""

    away = False

    async def cursor(self) -> int:
        self._look()
        return await super().cursor()

    async def record(self, entries: Any) -> None:
        self._look()
        await super().record(entries)

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> Any:
        self._look()
        return await super().events(job_id, after_seq, limit)

    async def events_of_jobs(self, job_ids: Any, limit: int = 1000) -> Any:
        self._look()
        return await super().events_of_jobs(job_ids, limit)

    def _look(self) -> None:
        if self.away:
            raise HistoryUnavailable("away")


def hands() -> Worker:
    worker = Worker("hands")

    @worker.task("work")
    async def work(params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.3)
        return {}

    return worker


async def test_a_job_is_watched_to_its_end_while_history_is_away() -> None:
    history = Absent()
    config = Config(client_token="t-client", worker_token="t-worker")
    director = OrchestratorEngine("memory", config, history=history)
    director.register_blueprint(one_task())
    director.add_worker(hands())
    site = await director.serve(port=0)
    history.away = True
    try:
        async with Client(site.url, "t-client") as client:
            # given a job that is on its way, and a history that has never heard of it
            job = await client.submit("script")

            # when somebody watches it from then on
            async with asyncio.timeout(8):
                seen = [event async for event in client.events(job.id)]

            # then he sees everything, and how it ended
            assert seen[0].type is EventType.JOB_CREATED
            assert seen[-1].type is EventType.JOB_FINISHED
            told = [event.seq for event in seen if hasattr(event, "seq")]
            assert told == list(range(1, len(told) + 1))
            assert (await client.get(job.id)).status == "finished"
    finally:
        history.away = False
        await director.stop(0.0)
