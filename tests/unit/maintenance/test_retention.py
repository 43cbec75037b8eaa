import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from regista import Config, OrchestratorEngine
from regista.errors import JobNotFound
from regista.history.memory import MemoryHistory
from regista.maintenance.retention import BITES, Retention
from regista.model import JobSummary
from regista.testing.conformance.history import START, make_entry, make_summary
from regista.testing.conformance.history_kit import summaries_of
from tests.support import one_task


def rows(count: int, status: str = "finished") -> list[JobSummary]:
    """Jobs a minute apart, the last one now; each took a second."""
    times = [START - timedelta(minutes=count - 1 - n) for n in range(count)]
    return [
        make_summary(f"{status}-{n}", status, created_at=at, finished_at=at + timedelta(seconds=1))
        for n, at in enumerate(times)
    ]


async def kept(history: MemoryHistory) -> list[str]:
    return [row.job_id for row in await summaries_of(history)]


async def filled(*some: JobSummary) -> MemoryHistory:
    history = MemoryHistory()
    await history.record([make_entry(n, row.job_id, summary=row) for n, row in enumerate(some, 1)])
    return history


async def test_what_ended_too_long_ago_is_forgotten() -> None:
    history = await filled(*rows(5))
    report = await Retention(history, max_age_s=150.0).run_once(START)
    assert report.done == 2
    assert await kept(history) == ["finished-4", "finished-3", "finished-2"]
    assert (await Retention(history, max_age_s=150.0).run_once(START)).done == 0


async def test_only_so_many_are_kept_the_newest() -> None:
    history = await filled(*rows(5))
    assert (await Retention(history, max_jobs=2).run_once(START)).done == 3
    assert await kept(history) == ["finished-4", "finished-3"]


async def test_jobs_that_live_are_never_forgotten() -> None:
    alive = [make_summary(f"alive-{n}", "running", created_at=START - timedelta(days=n)) for n in range(9)]
    stuck = make_summary("stuck", "quarantined", created_at=START - timedelta(days=20))
    history = await filled(*rows(3), *alive, stuck)
    await Retention(history, max_age_s=1.0, max_jobs=1).run_once(START + timedelta(days=30))
    assert set(await kept(history)) == {row.job_id for row in (*alive, stuck)}


async def test_much_is_forgotten_a_bite_at_a_time_and_the_rest_soon() -> None:
    history = await filled(*rows(25))
    retention = Retention(history, max_jobs=1, bite=2)
    report = await retention.run_once(START)
    assert (report.done, report.run_again_in_s) == (2 * BITES, 1.0)
    report = await retention.run_once(START)
    assert (report.done, report.run_again_in_s) == (4, None)


async def test_without_a_bound_nothing_is_forgotten_and_two_at_once_do_no_harm() -> None:
    history = await filled(*rows(9))
    assert (await Retention(history).run_once(START)).done == 0
    assert (await Retention(history, max_age_s=1e15).run_once(START)).done == 0
    two = [Retention(history, max_jobs=4).run_once(START) for _ in range(2)]
    await asyncio.gather(*two)
    assert len(await kept(history)) == 4


def test_the_setting_makes_the_chore_and_without_it_there_is_none() -> None:
    with_it = OrchestratorEngine("memory", Config(history_max_jobs=5))
    without = OrchestratorEngine("memory", Config())
    assert "retention" in [chore.name for chore in with_it.maintenance.chores]
    assert "retention" not in [chore.name for chore in without.maintenance.chores]


async def test_the_file_of_jobs_forgets_what_its_history_forgets(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path / 'jobs.db'}"

    config = Config(instance_id="x", history_max_age_s=1.0)
    director = OrchestratorEngine(storage, config)
    director.register_blueprint(one_task())
    async with director:
        gone = await director.submit("script")
        alive = await director.submit("script")
        await director.cancel(gone.id)
        await director.recorder.drain()
        (retention,) = [chore for chore in director.maintenance.chores if chore.name == "retention"]
        assert (await retention.run_once(director.clock.now() + timedelta(hours=1))).done == 1
        with pytest.raises(JobNotFound):
            await director.get(gone.id)
        assert (await director.get(alive.id)).id == alive.id
    async with OrchestratorEngine(storage, config) as again:
        with pytest.raises(JobNotFound):
            await again.get(gone.id)
        assert (await again.get(alive.id)).id == alive.id


async def test_a_time_before_time_began_is_no_time() -> None:
    history = await filled(*rows(2))
    early = datetime(1, 1, 2, tzinfo=START.tzinfo)
    assert (await Retention(history, max_age_s=10 * 86400.0).run_once(early)).done == 0
