"""The client against a real orchestrator in the same process, over a real port."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from regista import (
    ApiError,
    ApprovalConflict,
    Client,
    Config,
    Event,
    IdempotencyConflict,
    JobAlreadyTerminal,
    JobNotFound,
    OrchestratorEngine,
    PermanentError,
    StateMachineBlueprint,
    TaskContext,
    Unreachable,
    Worker,
)
from regista.blueprint import ActionFactory, JobContext
from regista.client import JobObject, Progress
from regista.errors import BlueprintNotFound, NotQuarantined
from tests.ports import free_port
from tests.support import one_task, script

TOKEN = "client-secret"


def ask(context: JobContext, actions: ActionFactory) -> None:
    actions.await_human_approval("Really?", transitions={"approve": "yes", "reject": "no"})


def blueprints() -> list[StateMachineBlueprint]:
    return [one_task(name="work"), script(ask, "yes", "no", name="ask")]


def crew() -> Worker:
    worker = Worker("crew")

    @worker.task("work")
    async def work(params: dict[str, Any], context: TaskContext) -> Any:
        await asyncio.sleep(params.get("s", 0))
        if params.get("break"):
            raise PermanentError("broken")
        context.progress(0.5, "half")
        return {"n": params.get("n")}

    return worker


def director_on(storage: str = "memory", *, works: bool = True) -> OrchestratorEngine:
    director = OrchestratorEngine(storage, Config(client_token=TOKEN, worker_token="w"))
    for blueprint in blueprints():
        director.register_blueprint(blueprint)
    if works:
        director.add_worker(crew())
    return director


@asynccontextmanager
async def client_of(director: OrchestratorEngine) -> AsyncIterator[Client]:
    site = await director.serve(port=0)
    try:
        async with Client(site.url, TOKEN) as client:
            yield client
    finally:
        await director.stop(0.0)


def run(test: Callable[[Client], Awaitable[None]], *, works: bool = True) -> None:
    async def main() -> None:
        async with client_of(director_on(works=works)) as client:
            await test(client)

    asyncio.run(main())


def test_a_job_is_run_in_one_call() -> None:
    async def test(client: Client) -> None:
        job = await client.run("work", {"n": 7}, timeout_s=5, priority=2)

        assert (job.status, job.data) == ("finished", {"n": 7})
        assert (await client.get(job.id)).id == job.id

    run(test)


def test_a_wait_that_is_over_too_soon_returns_the_job_as_it_is() -> None:
    async def test(client: Client) -> None:
        assert (await client.run("work", timeout_s=0.05)).status == "waiting_for_worker"
        job = await client.submit("work")
        assert (await client.wait(job.id, 0.05)).status == "waiting_for_worker"

    run(test, works=False)


def test_a_key_names_one_job_and_one_body() -> None:
    async def test(client: Client) -> None:
        first = await client.submit("work", {"n": 1}, idempotency_key="k")
        again = await client.submit("work", {"n": 1}, idempotency_key="k")
        assert again.id == first.id
        with pytest.raises(IdempotencyConflict) as caught:
            await client.submit("work", {"n": 2}, idempotency_key="k")
        assert caught.value.job_id == first.id

    run(test)


def test_many_are_submitted_at_once_and_told_as_they_end() -> None:
    async def test(client: Client) -> None:
        wishes = [{"blueprint": "work", "input": {"n": n, "s": 0.2 if n == 0 else 0}} for n in range(30)]
        answers = await client.submit_many([*wishes, {"blueprint": "nothing"}])

        jobs = [answer for answer in answers if isinstance(answer, JobObject)]
        assert len(jobs) == 30
        assert isinstance(answers[-1], BlueprintNotFound)
        ended = [job.data["n"] async for job in client.wait_many([job.id for job in jobs])]
        assert sorted(ended) == list(range(30))
        assert ended[-1] == 0  # the slow one does not hold up the others

    run(test)


def test_waiting_for_many_tells_of_attempts_where_asked() -> None:
    async def test(client: Client) -> None:
        jobs = await client.submit_many([{"blueprint": "work", "input": {"n": n, "s": 0}} for n in range(3)])
        ids = [job.id for job in jobs if isinstance(job, JobObject)]
        assert [job.attempts async for job in client.wait_many(ids)] == [[], [], []]
        told = [job.attempts async for job in client.wait_many(ids, attempts=True)]
        assert [[attempt.state for attempt in attempts] for attempts in told] == [["finished"]] * 3

    run(test)


def test_waiting_for_many_ends_with_the_time_and_names_a_stranger() -> None:
    async def test(client: Client) -> None:
        job = await client.submit("ask")
        assert [job async for job in client.wait_many([job.id], timeout_s=0.05)] == []
        with pytest.raises(JobNotFound, match="no-such-job"):
            _ = [job async for job in client.wait_many([job.id, "no-such-job"], timeout_s=0.05)]

    run(test)


def test_lists_are_read_page_by_page() -> None:
    async def test(client: Client) -> None:
        await client.submit_many([{"blueprint": "ask"}] * 7)
        await client.run("work", timeout_s=5)

        assert len([job async for job in client.jobs(page=3)]) == 8
        waiting = [job async for job in client.jobs(status="waiting_for_human", page=3)]
        assert {job.blueprint for job in waiting} == {"ask"}
        assert len([job async for job in client.jobs(blueprint="work")]) == 1

    run(test)


def test_events_are_told_to_the_end_and_history_tells_the_same() -> None:
    async def test(client: Client) -> None:
        job = await client.submit("work", {"n": 1, "s": 0.05})
        heard = [event async for event in client.events(job.id)]

        events = [event for event in heard if isinstance(event, Event)]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert events[-1].type == "job_finished"
        assert any(isinstance(event, Progress) and event.progress == 0.5 for event in heard)
        assert [event.seq for event in await client.history(job.id)] == [event.seq for event in events]
        assert [event async for event in client.events(job.id, after=str(len(events)))] == []

    run(test)


def test_the_events_of_all_jobs_are_one_stream() -> None:
    async def test(client: Client) -> None:
        jobs = [(await client.run("work", timeout_s=5)).id for _ in range(3)]
        ended = []
        async for event in client.events(after="0"):
            if event.type == "job_finished":
                ended.append(event.job_id)
                if len(ended) == 3:
                    break
        assert ended == jobs

    run(test)


def test_a_person_decides_once() -> None:
    async def test(client: Client) -> None:
        job = await client.submit("ask")
        job = await client.approve(job.id, "approve", "fine", {"by": "Ada"})
        job = await client.wait(job.id, 5)
        assert (job.status, job.state, job.data) == ("finished", "yes", {"by": "Ada"})
        await client.approve(job.id, "approve")  # twice the same is fine
        with pytest.raises(ApprovalConflict):
            await client.approve(job.id, "reject")

    run(test)


def test_a_job_is_cancelled_and_that_is_final() -> None:
    async def test(client: Client) -> None:
        job = await client.submit("ask")
        assert (await client.cancel(job.id, "enough")).status == "cancelled"
        with pytest.raises(JobAlreadyTerminal) as caught:
            await client.cancel(job.id)
        assert caught.value.status == "cancelled"

    run(test)


def test_a_quarantined_job_is_released_failed_and_forked() -> None:
    async def test(client: Client) -> None:
        job = await client.run("work", {"break": True}, timeout_s=5)
        assert (job.status, job.error and job.error.message) == ("quarantined", "broken")
        await client.retry(job.id, {"hint": 1})
        job = await client.wait(job.id, 5)
        assert (job.status, job.data) == ("quarantined", {"hint": 1})
        assert (await client.fail(job.id, "enough")).status == "failed"
        with pytest.raises(NotQuarantined):
            await client.release(job.id)
        forked = await client.fork(job.id, {"break": False})
        assert (await client.wait(forked.id, 5)).status == "finished"

    run(test)


def test_the_house_can_be_looked_at() -> None:
    async def test(client: Client) -> None:
        assert [blueprint["name"] for blueprint in await client.blueprints()] == ["ask", "work"]
        assert (await client.graph("ask")).startswith(b'digraph "ask"')
        (worker,) = await client.workers()
        assert worker["skills"] == ["work"]
        assert isinstance(await client.queues(), list)
        assert (await client.status())["status"] == "ok"
        assert client.server_time is not None
        job = await client.submit("ask")
        assert "summary" in await client.explain(job.id)
        assert (await client.drain(worker["id"]))["state"] == "draining"

    run(test)


def test_a_refusal_is_the_exception_that_it_is_inside() -> None:
    async def test(client: Client) -> None:
        with pytest.raises(JobNotFound) as caught:
            await client.get("a/b?c#d é")
        assert caught.value.job_id == "a/b?c#d é"
        with pytest.raises(BlueprintNotFound, match="registered: ask, work"):
            await client.submit("nothing")
        async with Client(client.url, "wrong") as stranger:
            with pytest.raises(ApiError) as refused:
                await stranger.get("x")
        assert refused.value.status == 401

    run(test)


async def test_nobody_there_is_unreachable() -> None:
    async with Client("http://127.0.0.1:9", TOKEN, first_contact_s=0.1) as client:
        with pytest.raises(Unreachable):
            await client.status()


async def test_calls_waits_and_streams_outlive_a_restart_of_the_orchestrator(tmp_path: Path) -> None:
    async def watch(client: Client, job_id: str) -> list[int]:
        return [event.seq async for event in client.events(job_id) if isinstance(event, Event)]

    storage = f"sqlite:{tmp_path / 'jobs.db'}"
    first = director_on(storage)
    site = await first.serve(port=free_port())
    async with Client(site.url, TOKEN) as client:
        job = await client.submit("ask")
        watching = asyncio.create_task(watch(client, job.id))
        waiting = asyncio.create_task(client.wait(job.id))
        await asyncio.sleep(0.2)
        await first.stop(0.0)
        submitting = asyncio.create_task(client.submit("work"))  # nobody is there to take it
        await asyncio.sleep(0.2)

        async with contextlib.AsyncExitStack() as exits:
            second = director_on(storage)
            await second.serve(port=site.port)
            exits.push_async_callback(second.stop, 0.0)
            assert (await client.wait((await submitting).id, 5)).status == "finished"
            await client.approve(job.id)
            assert (await waiting).status == "finished"
            seen = await watching
            assert seen == list(range(1, len(seen) + 1))
