"""The client against a real orchestrator, over a network that cuts, stalls and swallows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from regista import Client, JobAlreadyTerminal, OrchestratorEngine, Unreachable
from regista.config import Connection
from tests.proxy import Proxy
from tests.unit.client.test_client import TOKEN, director_on


@asynccontextmanager
async def behind_a_proxy(
    timeout_s: float = 5.0, *, works: bool = True
) -> AsyncIterator[tuple[Client, Proxy, OrchestratorEngine]]:
    director = director_on(works=works)
    server = await director.serve(port=0)
    try:
        async with Proxy(int(server.url.rpartition(":")[2])) as proxy:
            connection = Connection(url=proxy.url, token=TOKEN, timeout_s=timeout_s)
            async with Client(connection=connection) as client:
                await client.status()
                yield client, proxy, director
    finally:
        await director.stop(0.0)


async def jobs_of(client: Client) -> int:
    return int((await client.count())["count"])


async def test_a_submission_whose_answer_is_cut_is_one_job() -> None:
    async with behind_a_proxy() as (client, proxy, _):
        proxy.cut_after = 0
        job = await client.submit("work", {"n": 1})
        assert not proxy.will_cut
        assert (await client.wait(job.id, 5)).data == {"n": 1}
        assert await jobs_of(client) == 1


async def test_a_submission_whose_answer_is_swallowed_is_sent_again_with_its_key() -> None:
    async with behind_a_proxy(timeout_s=1.0) as (client, proxy, _):
        proxy.deaf = True
        submitting = asyncio.ensure_future(client.submit("work", {"n": 1}))
        await asyncio.sleep(0.3)
        proxy.deaf = False
        proxy.cut()
        job = await submitting
        assert (await client.wait(job.id, 5)).status == "finished"
        assert await jobs_of(client) == 1


async def test_calls_wait_for_an_orchestrator_that_is_away_for_a_moment() -> None:
    async with behind_a_proxy() as (client, proxy, _):
        proxy.close_the_line()
        submitting = asyncio.ensure_future(client.submit_many([{"blueprint": "work"}] * 3))
        await asyncio.sleep(0.3)
        assert not submitting.done()
        proxy.open_the_line()
        assert len(await submitting) == 3
        assert await jobs_of(client) == 3


@pytest.mark.parametrize("at", [1, 20, 200, 400])
async def test_half_an_answer_is_none_and_is_asked_for_again(at: int) -> None:
    async with behind_a_proxy() as (client, proxy, _):
        job = await client.run("work", {"n": 1}, timeout_s=5)
        proxy.cut_after = at
        assert (await client.get(job.id)).data == {"n": 1}
        assert not proxy.will_cut


async def test_what_must_not_happen_twice_is_not_sent_again_after_half_an_answer() -> None:
    async with behind_a_proxy(works=False) as (client, proxy, director):
        job = await client.submit("work")
        proxy.cut_after = 30
        with pytest.raises(Unreachable):
            await client.cancel(job.id)
        with pytest.raises(JobAlreadyTerminal):  # it was heard once
            await client.cancel(job.id)
        assert (await director.get(job.id)).status.terminal


async def test_a_slow_network_delays_large_answers_and_loses_nothing() -> None:
    async with behind_a_proxy() as (client, proxy, _):
        job = await client.run("work", {"n": "x" * 300_000}, timeout_s=5)
        proxy.slowness_s = 0.02
        assert (await client.get(job.id)).data == {"n": "x" * 300_000}


async def test_a_stalled_network_ends_in_unreachable_after_the_time_limit() -> None:
    async with behind_a_proxy(timeout_s=0.4) as (client, proxy, _):
        proxy.stall()
        with pytest.raises(Unreachable):
            await client.status()
        proxy.go_on()
        assert await client.status()


async def test_a_wait_outlives_a_cut() -> None:
    async with behind_a_proxy() as (client, proxy, _):
        job = await client.submit("work", {"n": 1, "s": 0.5})
        waiting = asyncio.ensure_future(client.wait(job.id, 5))
        await asyncio.sleep(0.2)
        proxy.cut()
        assert (await waiting).data == {"n": 1}


async def test_events_go_on_after_a_cut_without_gap_or_duplicate() -> None:
    async with behind_a_proxy() as (client, proxy, _):
        job = await client.submit("work", {"n": 1, "s": 0.5})
        followed = []
        async for event in client.events(job.id):
            followed.append(event)
            if len(followed) == 2:
                proxy.cut()
        events = [event for event in followed if hasattr(event, "seq")]
        assert events == await client.history(job.id)
