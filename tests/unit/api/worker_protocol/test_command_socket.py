"""The command socket of stock workers. wire.md 1.5."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from regista import JobStatus
from regista.workers.protocol.signing import sign
from tests.acceptance.house import TOKEN, House, Raw, house, raw, until

Scenario = Callable[[House, Raw], Awaitable[None]]


def play(scenario: Scenario, **settings: Any) -> None:
    async def run() -> None:
        async with house(**settings) as here, raw(here) as worker:
            await scenario(here, worker)

    asyncio.run(run())


async def running(here: House, worker: Raw) -> tuple[str, str]:
    """A job, and its attempt in the worker's hands."""
    await worker.register()
    job_id = await here.submit("echo")
    task = await worker.poll()
    return job_id, task["task_id"]


@pytest.mark.parametrize("path", ["/_worker/ws/raw", "/_worker/ws"])
def test_a_cancel_is_commanded_with_the_ids_of_task_and_job(path: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        job_id, attempt = await running(here, worker)
        async with worker.http.ws_connect(path) as socket:
            await asyncio.sleep(0.05)
            await here.director.cancel(job_id)
            command = await socket.receive_json(timeout=2)
            assert command == {"command": "cancel_task", "task_id": attempt, "job_id": job_id}
            # and in every heartbeat, until the worker has said that it stopped
            for _ in range(2):
                assert (await worker.beat(attempt))["cancel_task_ids"] == [attempt]
            await worker.finish({"job_id": job_id, "task_id": attempt}, status="cancelled")
            assert "cancel_task_ids" not in await worker.beat()
            assert (await here.director.get(job_id)).status is JobStatus.CANCELLED

    play(scenario)


@pytest.mark.parametrize("path", ["/_worker/ws/raw", "/_worker/ws"])
def test_progress_of_either_generation_is_heard(path: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        job_id, attempt = await running(here, worker)
        async with worker.http.ws_connect(path) as socket:
            for value, message in (
                (0.25, {"event": "progress_update", "task_id": attempt, "job_id": job_id, "progress": 0.25}),
                (
                    0.5,
                    {
                        "event_id": "e",
                        "worker_id": "raw",
                        "event_type": "progress",
                        "target_task_id": attempt,
                        "payload": {"progress": 0.5, "message": "half"},
                    },
                ),
            ):
                await socket.send_json(message)

                async def told(value: float = value) -> bool:
                    await here.director.workers.write_signs()
                    return bool((await here.task(job_id)).progress == value)

                await until(told)

    play(scenario)


@pytest.mark.parametrize(
    "message",
    [
        "{",
        "[]",
        "{}",
        '{"event_type": "progress"}',
        '{"event_type": "progress", "worker_id": "other", "target_task_id": "t"}',
        '{"event_type": "progress", "target_task_id": "t", "security": {"signature": "00"}}',
    ],
)
def test_a_message_that_makes_no_sense_is_noted_and_the_socket_stays(
    message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        job_id, attempt = await running(here, worker)
        async with worker.http.ws_connect("/_worker/ws/raw") as socket:
            await socket.send_str(message)
            await asyncio.sleep(0.05)
            await here.director.cancel(job_id)
            assert (await socket.receive_json(timeout=2))["task_id"] == attempt

    play(scenario)
    assert "was ignored" in caplog.text
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_signed_event_counts_where_signatures_are_required() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        async with worker.http.ws_connect("/_worker/ws/raw") as socket:
            event = {"worker_id": "raw", "event_type": "x", "bubbling_chain": [], "timestamp": 1}
            signature = sign(event, TOKEN, ("bubbling_chain",))
            await socket.send_json({**event, "security": {"signature": signature, "signer_id": "raw"}})
            await asyncio.sleep(0.05)
            assert not socket.closed

    play(scenario, worker_require_signatures=True)


def test_a_second_connection_of_a_worker_closes_the_first() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        async with (
            worker.http.ws_connect("/_worker/ws/raw") as first,
            worker.http.ws_connect("/_worker/ws/raw") as second,
        ):
            assert (await first.receive(timeout=2)).type is aiohttp.WSMsgType.CLOSE
            assert first.close_code == 1008
            assert not second.closed

    play(scenario)


def test_two_connections_without_a_name_live_side_by_side() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        job_id, _ = await running(here, worker)
        async with (
            worker.http.ws_connect("/_worker/ws") as first,
            worker.http.ws_connect("/_worker/ws") as second,
        ):
            await asyncio.sleep(0.05)
            await here.director.cancel(job_id)
            for socket in (first, second):
                assert (await socket.receive_json(timeout=2))["job_id"] == job_id

    play(scenario)


def test_a_closed_socket_changes_nothing() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        job_id, attempt = await running(here, worker)
        async with worker.http.ws_connect("/_worker/ws/raw"):
            pass
        await asyncio.sleep(0.05)
        answer = await worker.finish({"job_id": job_id, "task_id": attempt})
        assert answer["status"] == "accepted"
        assert here.director.dispatcher.find("raw") is not None

    play(scenario)


def test_a_socket_without_a_name_tells_nothing_of_attempts_that_its_token_does_not_reach(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workers = tmp_path / "workers.toml"
    workers.write_text('["raw"]\ntoken = "own"\n')

    async def scenario(here: House, worker: Raw) -> None:
        async with raw(here, **{"X-Worker-Token": "own"}) as owner:
            job_id, attempt = await running(here, owner)
            async with worker.http.ws_connect("/_worker/ws") as socket:  # with everybody's token
                payload = {"progress": 0.9, "checkpoint": {"evil": True}}
                for target in (attempt, "01a1e4ea-5fc6-7000-b0d3-6deb44b8d9bb_1_0-1"):
                    event = {"event_type": "progress", "target_task_id": target, "payload": payload}
                    await socket.send_json(event)
                await socket.send_json({"event_type": "progress"})  # the last one that is noted
                await until(lambda: caplog.text.count("was ignored") == 2)
            await here.director.workers.write_signs()
            task = await here.task(job_id)
            assert (task.progress, task.checkpoint) == (None, None)

    play(scenario, workers_config_path=str(workers))


def test_a_socket_without_a_name_is_closed_once_its_token_is_nobodys(tmp_path: Path) -> None:
    workers = tmp_path / "workers.toml"
    workers.write_text('["pattern:a-*"]\ntoken = "several"\n')

    async def scenario(here: House, worker: Raw) -> None:
        async with (
            raw(here, **{"X-Worker-Token": "several"}) as one,
            one.http.ws_connect("/_worker/ws") as socket,
        ):
            await socket.send_json({"event_type": "x"})
            workers.write_text("")
            assert here.director.reload()
            await socket.send_json({"event_type": "x"})
            message = await socket.receive(timeout=2)
            assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)

    play(scenario, workers_config_path=str(workers))


def test_when_the_orchestrator_stops_the_socket_is_closed_with_1001() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        async with worker.http.ws_connect("/_worker/ws/raw") as socket:
            await asyncio.sleep(0.05)
            stopping = asyncio.create_task(here.director.stop(0.0))
            await socket.receive(timeout=2)
            assert socket.close_code == 1001
            await stopping

    play(scenario)
