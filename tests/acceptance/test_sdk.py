"""Our own worker SDK against a real orchestrator, over real sockets."""

import asyncio
import logging
import threading
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from regista import EventType, InvalidInputError, JobStatus, PermanentError, TransientError
from regista.worker import TaskContext, Worker
from tests.acceptance.stream_kit import (
    QUICK,
    SHORT_LEASE_S,
    TOKEN,
    House,
    connected,
    play,
    until,
    until_async,
)
from tests.support import fan_out, fault, one_task

BOTH = pytest.mark.parametrize("streams", [None, False], ids=["stream", "poll"])


@BOTH
def test_a_job_is_done_by_a_worker_elsewhere(streams: bool | None) -> None:
    class TaskOrder(msgspec.Struct):
        n: int

    worker = Worker("w")

    @worker.task("work")
    async def work(order: TaskOrder) -> dict[str, Any]:
        return {"n": order.n + 1}

    async def main() -> None:
        async with House() as house, connected(worker, house.url, enable_websockets=streams):
            job = await house.run({"n": 1})
            assert (job.status, job.data) == (JobStatus.FINISHED, {"n": 2})
            wrong = await house.run({"n": "one"})
            assert (wrong.status, fault(wrong)) == (JobStatus.FAILED, "INVALID_INPUT_ERROR")
            assert "$.n" in (wrong.error.message if wrong.error else "")

    play(main())


@BOTH
def test_the_three_kinds_of_error_do_what_they_say(streams: bool | None) -> None:
    worker = Worker("w")
    tries: list[int] = []

    @worker.task("work")
    def work(params: dict[str, Any]) -> dict[str, Any]:
        tries.append(1)
        match params["kind"]:
            case "permanent":
                raise PermanentError("no such codec", codec="av2")
            case "invalid":
                raise InvalidInputError("the picture is upside down")
            case "transient" if len(tries) < 2:
                raise TransientError("the disk is full")
            case "surprise" if len(tries) < 2:
                raise KeyError("lens")
        return {"status": "success", "data": {"tries": len(tries)}}

    async def main() -> None:
        async with House() as house, connected(worker, house.url, enable_websockets=streams):
            seen = {}
            for kind in ("permanent", "invalid", "transient", "surprise"):
                tries.clear()
                job = await house.run({"kind": kind})
                seen[kind] = (job.status, job.error.code if job.error else job.data)
            assert seen == {
                "permanent": (JobStatus.QUARANTINED, "PERMANENT_ERROR"),
                "invalid": (JobStatus.FAILED, "INVALID_INPUT_ERROR"),
                "transient": (JobStatus.FINISHED, {"tries": 2}),
                "surprise": (JobStatus.FINISHED, {"tries": 2}),
            }

    play(main())


@BOTH
def test_a_status_of_its_own_leads_where_the_transitions_say(streams: bool | None) -> None:
    worker = Worker("w")
    worker.task("work")(lambda params: {"status": "blurry", "data": {"sharpness": 0.1}})

    async def main() -> None:
        blueprint = one_task("done", "retake", transitions={"success": "done", "blurry": "retake"})
        async with House(blueprint) as house, connected(worker, house.url, enable_websockets=streams):
            job = await house.run()
            assert (job.state, job.data) == ("retake", {"sharpness": 0.1})

    play(main())


@BOTH
def test_progress_is_seen_and_a_checkpoint_reaches_the_next_attempt(streams: bool | None) -> None:
    worker = Worker("w")
    found: list[Any] = []
    seen = asyncio.Event()

    @worker.task("work")
    async def work(params: dict[str, Any], context: TaskContext) -> None:
        found.append(context.checkpoint)
        if context.attempt == 1:
            context.progress(0.5, "half", checkpoint={"frame": 7})
            await seen.wait()
            raise RuntimeError("again")

    async def main() -> None:
        async with House() as house, connected(worker, house.url, enable_websockets=streams):
            job = await house.submit()

            async def half() -> bool:
                tasks = await house.director.storage.tasks_of(job.id)
                return [(task.progress, task.progress_message) for task in tasks] == [(0.5, "half")]

            await until_async(half)
            seen.set()
            assert (await house.wait(job)).status is JobStatus.FINISHED
            assert found == [None, {"frame": 7}]

    play(main())


@BOTH
@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_cancelled_job_stops_its_task_and_hears_that_it_did(kind: str, streams: bool | None) -> None:
    worker = Worker("w")
    began, left = threading.Event(), threading.Event()

    async def waits(params: dict[str, Any]) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            left.set()

    def thread(params: dict[str, Any], context: TaskContext) -> None:
        began.set()
        while not context.cancelled:
            threading.Event().wait(0.01)
        left.set()
        context.raise_if_cancelled()

    worker.task("work")(waits if kind == "async" else thread)

    async def main() -> None:
        async with House() as house, connected(worker, house.url, enable_websockets=streams) as remote:
            job = await house.submit()
            await until(began.is_set)
            await house.director.cancel(job.id, "changed my mind")
            ended = await house.wait(job)
            assert ended.status is JobStatus.CANCELLED
            assert left.is_set()
            (*_, last) = await house.director.events(job.id)
            assert not (last.detail or {}).get("unconfirmed")
            await until(lambda: remote.held() == [])

    play(main())


@BOTH
def test_a_fan_out_uses_every_slot_and_no_more(streams: bool | None) -> None:
    worker = Worker("w", concurrency=4)
    now, most = 0, 0

    @worker.task("work", concurrency=3)
    async def work(params: dict[str, Any]) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        return int(params["n"])

    async def main() -> None:
        async with House(fan_out(30)) as house, connected(worker, house.url, enable_websockets=streams):
            job = await house.run()
            assert sorted(each["data"] for each in job.data["results"]) == list(range(30))
            assert most == 3

    play(main())


@BOTH
def test_a_result_that_is_no_plain_data_or_too_large_is_the_task_s_own_failure(streams: bool | None) -> None:
    worker = Worker("w")
    worker.task("work")(lambda params: object() if params["odd"] else "x" * 5_000_000)

    async def main() -> None:
        async with (
            House(max_body_bytes=2_000_000) as house,
            connected(worker, house.url, enable_websockets=streams),
        ):
            for odd, told in ((True, "plain data"), (False, "larger")):
                job = await house.run({"odd": odd})
                assert (job.status, fault(job)) == (JobStatus.QUARANTINED, "PERMANENT_ERROR")
                assert told in (job.error.message if job.error else "")

    play(main())


def test_what_a_worker_says_about_itself_is_known_and_what_is_hot_follows_with_a_beat() -> None:
    worker = Worker(
        "w", concurrency=3, queues=["work"], labels={"team": "x"}, zone="eu", cost_per_second=0.5, hot=["a"]
    )

    @worker.task("work", concurrency=2)
    def work(width: int) -> None: ...

    async def main() -> None:
        house = House(lease_s=SHORT_LEASE_S)  # a beat comes with each third of a lease
        async with house, connected(worker, house.url) as remote:
            seat = house.director.dispatcher.find(remote.id)
            assert seat is not None
            known, profile = seat.worker, seat.worker.profile
            assert (known.capacity, known.queues, known.limits) == (3, ("work",), {"work": 2})
            assert (profile.labels["team"], profile.zone, profile.cost_per_second) == ("x", "eu", 0.5)
            assert (profile.hot, known.transport) == (("a",), "stream")
            assert profile.cpu_cores > 0
            assert "work" in known.schemas
            worker.add_hot("b")
            await until(lambda: seat.worker.profile.hot == ("a", "b"))

    play(main())


def test_a_worker_that_is_there_first_waits_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker("w")
    worker.task("work")(lambda params: {"n": 1})
    caplog.set_level(logging.INFO, "regista.worker")
    said: list[str] = []

    async def main() -> None:
        house = House()  # its port is known, and nobody listens on it
        async with connected(worker, house.url, wait=False) as remote:
            await asyncio.sleep(2.2)
            async with house:
                assert await remote.wait_connected(5)
                assert (await house.run()).data == {"n": 1}
                said.extend(record.message for record in caplog.records)  # before it goes away again

    play(main())
    assert len([line for line in said if "cannot be reached" in line]) == 1
    assert len([line for line in said if "connected to" in line]) == 1


def test_a_wrong_token_is_told_once_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker("w")
    worker.task("work")(lambda params: None)

    async def main() -> None:
        async with House() as house, connected(worker, house.url, wait=False, token="wrong") as remote:
            assert not await remote.wait_connected(1.0)

    play(main())
    (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "WORKER_TOKEN" in line.message
    assert TOKEN not in caplog.text
    assert "wrong" not in line.message


@pytest.mark.parametrize("answer", [(500, "oops"), (200, "<html>"), (200, "[]"), (200, '{"session": "x"}')])
def test_an_answer_that_makes_no_sense_is_told_once_and_tried_again(
    answer: tuple[int, str], caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker("w")
    worker.task("work")(lambda params: None)
    asked: list[str] = []

    async def odd(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=answer[0], text=answer[1])

    async def main() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", odd)
        async with TestServer(app) as server, connected(worker, str(server.make_url("")), wait=False):
            await until(lambda: len(asked) == 2)

    play(main())
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "registration" in line.message
    assert "Traceback" not in caplog.text


def test_stop_lets_tasks_finish_delivers_and_hands_back_the_rest_at_once() -> None:
    first, second = Worker("first", concurrency=2), Worker("second")
    seen: list[tuple[str, int]] = []

    @first.task("work")
    async def work(params: dict[str, Any], context: TaskContext) -> str:
        await asyncio.sleep(params["seconds"])
        return "first"

    @second.task("work")
    async def elsewhere(params: dict[str, Any], context: TaskContext) -> str:
        seen.append((params["name"], context.attempt))
        return "second"

    async def main() -> None:
        house = House(one_task(retry=QUICK), lease_s=30)
        async with house, connected(first, house.url) as remote:
            short = await house.submit({"name": "short", "seconds": 0.3})
            long = await house.submit({"name": "long", "seconds": 60})
            await until(lambda: len(remote.held()) == 2)
            async with connected(second, house.url):
                await remote.stop(0.6)
                # Long before its lease would have told.
                assert (await house.wait(long, 2)).data == {"work": "second"}
                assert (await house.wait(short, 2)).data == {"work": "first"}
        assert seen == [("long", 2)]

    play(main())


def test_a_drained_worker_gets_nothing_new_and_its_result_still_counts() -> None:
    worker = Worker("w")
    release = asyncio.Event()
    runs: list[int] = []

    @worker.task("work")
    async def work(params: dict[str, Any]) -> None:
        runs.append(1)
        await release.wait()

    async def main() -> None:
        async with House() as house, connected(worker, house.url) as remote:
            running = await house.submit()
            await until(lambda: len(runs) == 1)
            house.director.workers.drain(remote.id)
            waiting = await house.submit()
            release.set()
            assert (await house.wait(running)).status is JobStatus.FINISHED
            await asyncio.sleep(0.2)
            assert (await house.director.get(waiting.id)).status is JobStatus.WAITING_FOR_WORKER
            house.director.workers.drain(remote.id, False)
            assert (await house.wait(waiting)).status is JobStatus.FINISHED

    play(main())


def test_a_long_task_is_known_to_have_started_while_it_runs() -> None:
    worker = Worker("w")

    @worker.task("work")
    async def work(params: dict[str, Any]) -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        async with House(lease_s=30) as house, connected(worker, house.url):
            job = await house.submit()
            await house.until_event(job, EventType.TASK_STARTED)

    play(main())
