import asyncio

import pytest

from regista.errors import HistoryDisabled
from regista.history.reader import read_events
from regista.history.recorder import HistoryRecorder
from regista.history.store_only import NoHistory
from regista.storage.memory import MemoryStorage
from regista.testing.conformance.history_kit import summaries_of, summary_of
from regista.testing.conformance.storage.kit import ALL, create, event, make_job, running


def test_nothing_is_recorded_and_nothing_is_pruned() -> None:
    async def play() -> None:
        async with running(MemoryStorage()) as storage:
            await create(storage, make_job(), events=(event("kept"),))
            entries = (await storage.outbox(0, ALL)).entries

            async def newest() -> int:
                return entries[-1].number

            history = NoHistory(newest)
            assert await history.cursor() == entries[-1].number
            await HistoryRecorder(storage, history).drain()
            assert (await storage.outbox(0, ALL)).entries == entries
            told = await read_events(storage, history, "job-1")
            assert [event.message for event in told] == ["kept"]

    asyncio.run(play())


async def test_what_needs_a_history_is_refused() -> None:
    async def newest() -> int:
        return 0

    history = NoHistory(newest)
    await history.start()
    for question in (summaries_of(history), summary_of(history, "job-1")):
        with pytest.raises(HistoryDisabled, match="HISTORY_DATABASE_URI names one"):
            await question
    assert await history.events_of_jobs(["job-1"]) == {}
    assert await history.entries(7) == ([], 7)
    await history.stop()
