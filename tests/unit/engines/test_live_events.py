"""The feed: each flushed event, to everybody who watches, in order and once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from regista import Config, OrchestratorEngine, Worker
from regista.engines import live_events as module
from regista.engines.live_events import EventSubscription, LiveEvent, LiveEventFeed
from regista.schemas.jobs import Progress
from regista.storage.base import HintKind
from tests.support import one_task


def run(body: Callable[[OrchestratorEngine], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        director = OrchestratorEngine("memory", Config(instance_id="x"))
        director.register_blueprint(one_task())
        hands = Worker("hands")
        hands.task("work")(lambda params: None)
        director.add_worker(hands)
        async with director:
            await body(director)

    asyncio.run(main())


async def heard(reader: EventSubscription, ends: int = 1) -> list[LiveEvent]:
    """Everything up to so many ends of jobs."""
    found: list[LiveEvent] = []
    async with asyncio.timeout(5):
        while sum(told.event.type == "job_finished" for told in found) < ends:
            found += [one for one in await reader.take(5) if isinstance(one, LiveEvent)]
    return found


def test_a_reader_of_one_job_hears_all_of_it_and_nothing_else() -> None:
    async def body(director: OrchestratorEngine) -> None:
        job = await director.submit("script", idempotency_key="a")
        reader = await director.feed.subscribe(job_id=job.id)
        other = await director.run_job("script")
        await director.wait(job.id)
        told = await director.events(job.id)
        news = [one.event for one in await reader.take(1) if isinstance(one, LiveEvent)]
        assert other.id not in {event.job_id for event in news}
        assert news == told[-len(news) :]
        director.feed.unsubscribe(reader)

    run(body)


def test_readers_share_what_they_are_told() -> None:
    async def body(director: OrchestratorEngine) -> None:
        feed = director.feed
        one, other, stranger = (
            await feed.subscribe(),
            await feed.subscribe(client="ada"),
            await feed.subscribe(client="bob"),
        )
        await director.run_job("script", client="ada")
        first, second = await heard(one), await heard(other)
        assert [id(told) for told in first] == [id(told) for told in second]
        assert [told.event.seq for told in first] == list(range(1, len(first) + 1))
        assert await stranger.take(0.01) == []
        for reader in (one, other, stranger):
            feed.unsubscribe(reader)

    run(body)


def test_nothing_is_read_while_nobody_watches() -> None:
    async def body(director: OrchestratorEngine) -> None:
        await director.run_job("script")
        assert [task for task in asyncio.all_tasks() if task.get_name() == "feed"] == []
        reader = await director.feed.subscribe()
        assert reader.since > 0
        director.feed.unsubscribe(reader)
        director.feed.unsubscribe(reader)
        await director.run_job("script")
        await asyncio.sleep(0.05)
        assert [task for task in asyncio.all_tasks() if task.get_name() == "feed"] == []

    run(body)


def test_a_reader_hears_only_what_comes_after_it_joined() -> None:
    async def body(director: OrchestratorEngine) -> None:
        before = await director.run_job("script")
        reader = await director.feed.subscribe()
        after = await director.run_job("script")
        told = await heard(reader)
        assert {one.event.job_id for one in told} == {after.id} != {before.id}
        assert all(one.number > reader.since for one in told)
        director.feed.unsubscribe(reader)

    run(body)


def test_a_lost_hint_costs_a_moment_and_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECHECK_S", 0.1)

    async def body(director: OrchestratorEngine) -> None:
        # The feed gets no hints any more.
        director.hints.handlers[HintKind.OUTBOX] = (lambda hint: director.recorder.wake(),)
        reader = await director.feed.subscribe()
        job = await director.run_job("script")
        # Then it is told, or told that there is something in the store
        news = await reader.take(5)
        assert reader.missed or news
        assert len(await director.events(job.id)) > 5
        director.feed.unsubscribe(reader)

    run(body)


def test_entries_that_went_by_unheard_are_noticed() -> None:
    async def body(director: OrchestratorEngine) -> None:
        feed = director.feed
        reader = await feed.subscribe()
        wake, feed.wake = feed.wake, lambda: None  # type: ignore[method-assign]
        await director.run_job("script")
        await director.recorder.drain()
        await director.storage.prune(2**62)
        feed.wake = wake  # type: ignore[method-assign]
        await director.run_job("script")
        await heard(reader)
        assert reader.missed
        feed.unsubscribe(reader)

    run(body)


def test_a_slow_reader_is_cut_off_and_has_all_up_to_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BEHIND", 10)

    async def body(director: OrchestratorEngine) -> None:
        slow, quick = await director.feed.subscribe(), await director.feed.subscribe()
        quick.push = lambda news: None  # type: ignore[method-assign]
        await director.run_job("script")
        await director.run_job("script")
        await asyncio.sleep(0.05)
        told = await slow.take(1)
        assert len(told) == 10
        assert (slow.slow, slow.over) == (True, True)
        assert await slow.take(5) == []
        assert not quick.over
        for reader in (slow, quick):
            director.feed.unsubscribe(reader)

    run(body)


def test_progress_gives_way_to_events_where_it_gets_tight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BEHIND", 4)

    async def body(director: OrchestratorEngine) -> None:
        feed = director.feed
        mine, others = await feed.subscribe(job_id="job"), await feed.subscribe(job_id="other")
        for step in range(10):
            feed.progress("job_1_0-1", step / 10, f"step {step}")
        told = await mine.take(1)
        assert [one.progress for one in told if isinstance(one, Progress)] == [0.0, 0.1]
        names = {(one.task_id, one.attempt_id) for one in told if isinstance(one, Progress)}
        assert names == {("job_1_0", "job_1_0-1")}  # the task as in its events, and the attempt
        assert (mine.over, await others.take(0.01)) == (False, [])
        for reader in (mine, others):
            feed.unsubscribe(reader)

    run(body)


def test_everybody_is_sent_home_when_it_stops_and_nobody_gets_in_afterwards() -> None:
    async def body(director: OrchestratorEngine) -> None:
        reader = await director.feed.subscribe()
        waits = asyncio.ensure_future(reader.take(60))
        await asyncio.sleep(0)
        await director.feed.stop()
        await director.feed.stop()
        async with asyncio.timeout(1):
            assert await waits == []
        assert reader.over
        late = await director.feed.subscribe()
        assert late.over

    run(body)


async def test_stop_before_start_is_fine() -> None:
    director = OrchestratorEngine("memory", Config(instance_id="x"))
    await LiveEventFeed(director.storage, director.history, director.clock).stop()
