"""What the original system does wrong when it is run, and ours does right: workers and dispatch.

The numbers are those of wire.md, section 7; what concerns clients alone stands beside their API.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from regista import EventType, JobStatus, StateMachineBlueprint
from regista.blueprint import ActionFactory, JobContext
from regista.workers.protocol.signing import sign
from tests.acceptance.any_store import redis_server, storage
from tests.acceptance.house import OLD, TOKEN, House, Raw, house, raw, until
from tests.ports import free_port
from tests.stopwatch import Stopwatch
from tests.support import only, script

__all__ = ["redis_server", "storage"]  # fixtures

Scenario = Callable[[House, Raw], Awaitable[None]]


def play(scenario: Scenario, storage: str, **settings: Any) -> None:
    """Run a scenario with a house and a worker before its door."""

    async def run() -> None:
        async with house(storage, **settings) as here, raw(here) as worker:
            await scenario(here, worker)

    asyncio.run(run())


# -- NEW 1 -------------------------------------------------------------------------------------------


def test_1_fifty_jobs_at_once_with_a_slow_handler_all_finish(storage: str) -> None:
    async def start(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(0.05)
        actions.transition_to("done")

    async def scenario(here: House, worker: Raw) -> None:
        here.director.register_blueprint(script(start, "done", name="slow"))
        watch = Stopwatch()
        jobs = await asyncio.gather(*(here.director.run_job("slow", timeout_s=5) for _ in range(50)))
        assert {job.status for job in jobs} == {JobStatus.FINISHED}
        assert watch.elapsed_s() < 2.5  # one after the other they would take as long

    play(scenario, storage)


# -- NEW 2 -------------------------------------------------------------------------------------------


def test_2_without_an_idle_worker_a_job_waits(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        first = await here.submit("echo")  # nobody has registered
        await worker.register(resources={"max_concurrent_tasks": 1, "cpu_cores": 1})
        task = await worker.poll()
        patient = await here.director.submit("play", {"skill": "echo"}, dispatch_timeout_s=30)
        await worker.beat(task["task_id"], status="busy", supported_skills=[])  # everybody is full
        await asyncio.sleep(0.3)
        assert (await here.director.get(patient.id)).status is JobStatus.WAITING_FOR_WORKER
        await worker.finish(task)
        await worker.finish(await worker.poll())
        for job_id in (first, patient.id):
            assert (await here.director.get(job_id)).status is JobStatus.FINISHED

    play(scenario, storage)


# -- NEW 3 -------------------------------------------------------------------------------------------


def test_3_a_task_that_had_waited_is_not_given_to_a_second_worker_by_the_watcher(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        job_id = await here.submit("echo")
        await asyncio.sleep(0.5)
        await worker.register()
        task = await worker.poll()
        await worker.beat(task["task_id"])
        await asyncio.sleep(1.5)  # several ticks
        async with raw(here, "second") as second:
            await second.register()
            assert await second.poll(0.2) is None
        assert (await worker.finish(task))["status"] == "accepted"
        events = await here.director.events(job_id)
        assert only(events, EventType.TASK_RETRIED) == []

    play(scenario, storage, watcher_interval_s=0.1)


def test_3_a_dispatch_timeout_really_fires(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        job = await here.director.submit("play", {"skill": "echo"}, dispatch_timeout_s=0.3)
        ended = await here.director.wait(job.id, 5)
        assert (ended.status, ended.error and ended.error.code) == (JobStatus.FAILED, "dispatch_timeout")

    play(scenario, storage, lease_s=0.2, poll_lease_s=0.2)


# -- NEW 4 -------------------------------------------------------------------------------------------


def test_4_a_poll_whose_client_went_away_takes_no_task(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        connected = here.director.dispatcher.find("raw")
        assert connected is not None
        for _ in range(20):
            poll = asyncio.create_task(worker.poll(10))
            await until(lambda: connected.credit == 1)
            submitting = asyncio.create_task(here.submit("echo"))
            poll.cancel()  # at the very moment when a task comes
            await asyncio.gather(poll, return_exceptions=True)
            job_id = await submitting
            task = await worker.poll(5)
            if task is None:  # it had left: two heartbeats say that it never arrived
                await worker.beat()
                await worker.beat()
                task = await worker.poll(5)
            await worker.finish(task)
            assert (await here.director.wait(job_id, 5)).status is JobStatus.FINISHED
        assert len(connected.attempts) == 0

    play(scenario, storage)


# -- NEW 5 -------------------------------------------------------------------------------------------


def test_5_a_cancelled_job_stays_cancelled_whatever_its_worker_says(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        job_id = await here.submit("echo")
        task = await worker.poll()
        async with worker.http.ws_connect("/_worker/ws/raw") as socket:
            await asyncio.sleep(0.05)
            await here.director.cancel(job_id)
            assert (await socket.receive_json(timeout=2))["command"] == "cancel_task"
            assert (await worker.beat(task["task_id"]))["cancel_task_ids"] == [task["task_id"]]
        assert (await worker.finish(task, {"too": "late"}))["status"] == "accepted"
        job = await here.director.wait(job_id, 5)
        assert (job.status, job.data) == (JobStatus.CANCELLED, {})

    play(scenario, storage)


def test_5_cancel_reaches_queued_tasks_branches_and_children(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        here.director.register_blueprint(parent())
        queued = await here.submit("nobody-can")
        branches = await here.director.submit("crowd", {"count": 5})
        family = await here.director.submit("parent")
        await worker.register()
        taken = await worker.poll()
        await until(lambda: _has_child(here, family.id))
        (child,) = await _children(here, family.id)
        for job_id in (queued, branches.id, family.id):
            await here.director.cancel(job_id)
        await worker.finish(taken, status="cancelled")
        for job_id in (queued, branches.id, family.id, child):
            assert (await here.director.wait(job_id, 5)).status is JobStatus.CANCELLED
        assert await worker.poll(0.1) is None

    play(scenario, storage, cancel_grace_s=1.0)


def parent() -> StateMachineBlueprint:
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("play", {"skill": "nobody-can"}, transitions={"success": "done"})

    return script(start, "done", name="parent")


async def _children(here: House, job_id: str) -> list[str]:
    events = await here.director.events(job_id)
    started = only(events, EventType.CHILD_STARTED)
    return [str(event.detail.get("child_id") or event.detail.get("job_id")) for event in started]


async def _has_child(here: House, job_id: str) -> bool:
    return bool(await _children(here, job_id))


# -- NEW 9 -------------------------------------------------------------------------------------------


def test_9_equal_priorities_are_served_in_the_order_of_their_arrival(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        submitted = [await here.submit("echo", n=number) for number in range(50)]
        await worker.register(resources={"max_concurrent_tasks": 50, "cpu_cores": 1})
        served = []
        for _ in submitted:
            task = await worker.poll()
            served.append(task["job_id"])
            await worker.finish(task)
        assert served == submitted

    play(scenario, storage)


def test_9_nobody_waits_much_longer_than_the_others(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register(resources={"max_concurrent_tasks": 50, "cpu_cores": 1})
        took_s: list[float] = []

        async def client() -> None:
            for _ in range(4):
                watch = Stopwatch()
                await here.run("echo", timeout_s=8)
                took_s.append(watch.elapsed_s())

        async def serve() -> None:
            while True:
                task = await worker.poll(5)
                if task is not None:
                    await worker.finish(task)

        serving = [asyncio.create_task(serve()) for _ in range(4)]
        await asyncio.gather(*(client() for _ in range(50)))
        for one in serving:
            one.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        middle, worst = sorted(took_s)[100], max(took_s)
        assert worst < 10 * middle + 0.5, f"p50 {middle:.3f} s, worst {worst:.3f} s"

    play(scenario, storage)


# -- NEW 10 ------------------------------------------------------------------------------------------


def test_10_messages_may_be_repeated_and_results_may_be_old(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        await here.submit("echo")
        task = await worker.poll()
        stamp = int(time.time())
        beat = _signed({"worker_id": "raw", "status": "idle", "current_tasks": [], "timestamp": stamp})
        for _ in range(2):
            assert (await worker.ask("PATCH", "/_worker/workers/raw", beat))["status"] == "ok"
        result = _signed(
            {
                "job_id": task["job_id"],
                "task_id": task["task_id"],
                "worker_id": "raw",
                "timestamp": stamp - 90,
            }
        )
        for _ in range(2):
            assert (await worker.ask("POST", "/_worker/tasks/result", result))["status"] == "accepted"

    play(scenario, storage, worker_require_signatures=False)


def _signed(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "security": {"signature": sign(body, TOKEN), "signer_id": "raw"}}


# -- NEW 11 ------------------------------------------------------------------------------------------


def test_11_a_worker_may_poll_and_beat_as_often_as_it_likes(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        for _ in range(150):
            assert await worker.poll(0) is None
            assert (await worker.beat())["status"] == "ok"

    play(scenario, storage)


# -- NEW 13 ------------------------------------------------------------------------------------------


def test_13_all_that_a_worker_returns_is_kept_and_its_error_can_be_read(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        job_id = await here.submit("echo")
        await worker.finish(await worker.poll(), {"first": 1, "second": {"deep": [2]}})
        assert (await here.director.get(job_id)).data == {"first": 1, "second": {"deep": [2]}}
        failed = await here.submit("echo")
        error = {"code": "INVALID_INPUT_ERROR", "message": "the picture is upside down"}
        await worker.finish(await worker.poll(), status="failure", error=error)
        job = await here.director.get(failed)
        assert job.error is not None
        assert (job.error.code, job.error.message) == (error["code"], error["message"])

    play(scenario, storage)


# -- NEW 15 ------------------------------------------------------------------------------------------

SERVE = """
import sys
from regista import OrchestratorEngine
from regista.config import Config
director = OrchestratorEngine("memory", Config(worker_token="a-worker-token", client_token="a-client-token"))
director.run("127.0.0.1", int(sys.argv[1]))
"""


async def test_15_sigterm_ends_a_process_with_open_polls_and_sockets() -> None:
    port = free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVE, str(port))
    try:
        url = f"http://127.0.0.1:{port}"
        headers = {"X-Worker-Token": TOKEN}
        async with aiohttp.ClientSession(url, headers=headers) as http:
            worker = Raw(http, "raw")
            await until(lambda: _registered(worker))
            polls = [asyncio.create_task(worker.poll(30)) for _ in range(3)]
            async with http.ws_connect("/_worker/ws/raw") as socket:
                await asyncio.sleep(0.2)
                began = time.monotonic()
                process.send_signal(signal.SIGTERM)
                assert await asyncio.gather(*polls) == [None, None, None]
                await socket.receive(timeout=2)
                assert await asyncio.wait_for(process.wait(), 5) == 0
                assert time.monotonic() - began < 3
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _registered(worker: Raw) -> bool:
    try:
        await worker.register()
    except aiohttp.ClientConnectionError:
        return False
    return True


# -- NEW 16 ------------------------------------------------------------------------------------------


async def test_16_many_waiting_workers_cost_nobody_an_error() -> None:
    async with house() as here:
        connector = aiohttp.TCPConnector(limit=0)
        headers = {"X-Worker-Token": TOKEN}
        async with aiohttp.ClientSession(here.site.url, headers=headers, connector=connector) as http:
            workers = [Raw(http, f"w{number}") for number in range(300)]
            await asyncio.gather(*(worker.register() for worker in workers))
            polls = [asyncio.create_task(worker.poll(5)) for worker in workers]
            await until(
                lambda: (
                    sum(connected.credit == 1 for connected in here.director.dispatcher.connected_workers())
                    == len(workers)
                )
            )
            await here.director.submit("crowd", {"count": len(workers)})
            tasks = await asyncio.gather(*polls)
            assert len({task["task_id"] for task in tasks}) == len(workers)


# -- OLD ---------------------------------------------------------------------------------------------


def test_old_heartbeats_with_null_members_are_fine_and_the_worker_stays(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        for _ in range(3):
            await asyncio.sleep(0.4)
            assert await worker.beat(hot_skills=None, skill_dependencies=None) == {"status": "ok"}
        assert here.director.dispatcher.find("raw") is not None
        # and after its heartbeats it still gets tasks
        job_id = await here.submit("echo")
        await worker.finish(await worker.poll())
        assert (await here.director.get(job_id)).status is JobStatus.FINISHED

    play(scenario, storage, lease_s=1.0, poll_lease_s=1.0)


def test_old_parallel_branches_are_all_accepted(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register(resources={"max_concurrent_tasks": 10, "cpu_cores": 1})
        job = await here.director.submit("crowd", {"count": 10})
        tasks = [await worker.poll() for _ in range(10)]
        for task in reversed(tasks):
            answer = await worker.finish(task, {"echo": task["params"]})
            assert answer == {"status": "accepted", "transition": "parallel_branch_accepted"}
        ended = await here.director.wait(job.id, 5)
        assert (ended.status, ended.data["echoes"]) == (JobStatus.FINISHED, list(range(10)))

    play(scenario, storage)


def test_old_registration_is_not_forgotten_while_its_worker_beats(storage: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register(**{**OLD, "worker_type": "kept"})
        for _ in range(4):
            await asyncio.sleep(0.4)
            await worker.beat()
        (facts,) = await here.director.workers.describe()
        assert (facts.worker.profile.type, facts.state) == ("kept", "ready")

    play(scenario, storage, lease_s=1.0, poll_lease_s=1.0)
