"""The stock workers, unmodified, of both generations. wire.md, Part B."""

import asyncio
import time
from pathlib import Path

import pytest

from regista import EventType, JobStatus
from tests.acceptance.house import house, until
from tests.acceptance.stock import stock, stock_worker

__all__ = ["stock"]  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # the first one installs the packages

#: More than both finish between two restarts.
COUNT = 2000

both = pytest.mark.parametrize("generation", ["old", "new"])


@both
async def test_it_registers_takes_tasks_and_returns_what_it_made_of_them(
    stock: Path, generation: str
) -> None:
    async with house() as here, stock_worker(stock, generation, here.site.url):
        job = await here.run("echo", word="hello")
        # then
        assert job.status is JobStatus.FINISHED
        assert job.data == {"echo": {"word": "hello"}}
        (facts,) = await here.director.workers.describe()
        assert (facts.worker.id, facts.worker.transport, facts.worker.profile.type) == (
            "stock-1",
            "poll",
            "stock",
        )
        assert "echo" in facts.worker.skills


@both
async def test_errors_of_all_three_kinds_mean_what_they_say(stock: Path, generation: str) -> None:
    async with house() as here, stock_worker(stock, generation, here.site.url):
        transient = await here.run("flaky")
        assert (transient.status, transient.data) == (JobStatus.FINISHED, {"runs": 3})
        permanent = await here.run("fail", code="PERMANENT_ERROR")
        assert (permanent.status, permanent.error.code) == (JobStatus.QUARANTINED, "PERMANENT_ERROR")
        invalid = await here.run("fail", code="INVALID_INPUT_ERROR")
        assert (invalid.status, invalid.error.message) == (JobStatus.FAILED, "on purpose")
        picky = await here.run("picky")  # a ValueError is an integrity error to the stock SDK
        assert (picky.status, picky.error.code) == (JobStatus.FAILED, "INTEGRITY_MISMATCH_ERROR")
        gave_up = await here.run("fail", code="TRANSIENT_ERROR")
        assert gave_up.status is JobStatus.QUARANTINED


@both
async def test_a_status_of_its_own_leads_where_the_transitions_say(stock: Path, generation: str) -> None:
    async with house() as here, stock_worker(stock, generation, here.site.url):
        known = await here.run("status", status="partial")
        assert (known.status, known.state, known.data) == (
            JobStatus.FINISHED,
            "half",
            {"said": "partial"},
        )
        unknown = await here.run("status", status="sideways")
        assert (unknown.status, unknown.error.code) == (JobStatus.FAILED, "unknown_status")


@both
def test_progress_arrives_over_the_socket(stock: Path, generation: str) -> None:
    async def scenario() -> None:
        async with (
            house() as here,
            stock_worker(stock, generation, here.site.url, WORKER_ENABLE_WEBSOCKETS="true"),
        ):
            await here.joined()
            job_id = await here.submit("progress")

            async def told() -> bool:
                task = await here.task(job_id)
                return (task.progress, task.progress_message) == (0.25, "a quarter")

            await until(told)

    asyncio.run(scenario())


def test_progress_arrives_as_an_event_where_there_is_no_socket(stock: Path) -> None:
    async def scenario() -> None:
        async with house() as here, stock_worker(stock, "new", here.site.url):
            job_id = await here.submit("progress")

            async def told() -> bool:
                return bool((await here.task(job_id)).progress == 0.25)

            await until(told)

    asyncio.run(scenario())


@both
async def test_cancel_is_obeyed_over_the_socket(stock: Path, generation: str) -> None:
    async with (
        house() as here,
        stock_worker(
            # no heartbeat comes in time to say it
            stock,
            generation,
            here.site.url,
            WORKER_ENABLE_WEBSOCKETS="true",
            HEARTBEAT_INTERVAL="60",
        ),
    ):
        await here.joined()
        await asyncio.sleep(0.5)  # its socket comes after its registration
        job_id = await here.submit("slow")
        await here.taken(job_id)
        began = time.monotonic()
        await here.director.cancel(job_id)
        job = await here.director.wait(job_id, 5)
        # then
        assert job.status is JobStatus.CANCELLED
        assert time.monotonic() - began < 3


@both
async def test_cancel_is_obeyed_with_a_heartbeat_where_there_is_no_socket(
    stock: Path, generation: str
) -> None:
    async with house() as here, stock_worker(stock, generation, here.site.url):
        job_id = await here.submit("slow")
        await here.taken(job_id)
        await here.director.cancel(job_id)
        job = await here.director.wait(job_id, 5)
        assert job.status is JobStatus.CANCELLED
        # and its slot is free again
        connected = here.director.dispatcher.find("stock-1")
        assert connected is not None
        await until(lambda: not connected.attempts)


@both
async def test_parallel_branches_all_count(stock: Path, generation: str) -> None:
    async with house() as here, stock_worker(stock, generation, here.site.url):
        job = await here.director.run_job("crowd", {"count": 12}, timeout_s=10)
        assert (job.status, job.data["echoes"]) == (JobStatus.FINISHED, list(range(12)))


@both
async def test_it_takes_more_than_sixty_tasks_a_minute(stock: Path, generation: str) -> None:
    async with house() as here, stock_worker(stock, generation, here.site.url):
        await here.joined()
        began = time.monotonic()
        job = await here.director.run_job("crowd", {"count": 60}, timeout_s=30)
        took_s = time.monotonic() - began
        assert job.status is JobStatus.FINISHED
        assert took_s < 30, f"60 tasks took {took_s:.1f} s"


@both
async def test_it_survives_a_restart_of_the_orchestrator(
    stock: Path, generation: str, tmp_path: Path
) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"

    async with house(store) as here:
        port = here.site.port
        worker = stock_worker(stock, generation, here.site.url)
        process = await worker.__aenter__()
        try:
            job_id = await here.submit("slow", seconds=3)
            await here.taken(job_id)
            await here.director.stop(0.0)
            await asyncio.sleep(0.5)
            async with house(store, port) as again:
                finished = await again.director.wait(job_id, 15)
                assert (finished.status, finished.data) == (JobStatus.FINISHED, {"slept": True})
                assert [task.attempt for task in await again.director.storage.tasks_of(job_id)] in (
                    [],
                    [1],
                )
                # and it takes new ones, though it registered with somebody else
                job = await again.run("echo", timeout_s=15, word="again")
                assert job.status is JobStatus.FINISHED
                assert process.returncode is None
                await worker.__aexit__(None, None, None)
        except BaseException as error:
            await worker.__aexit__(type(error), error, error.__traceback__)
            raise


def test_the_newer_one_registers_again_with_everything_it_has(stock: Path, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"

    async def scenario() -> None:
        async with house(store) as here:
            port = here.site.port
            async with stock_worker(stock, "new", here.site.url, GPU_MODEL="H100", GPU_VRAM_GB="80"):
                await here.joined()
                await here.director.stop(0.0)
                async with house(store, port) as again:

                    async def knows() -> bool:
                        facts = await again.director.workers.describe()
                        return bool(facts and facts[0].worker.profile.gpus)

                    await until(knows, 15)

    asyncio.run(scenario())


@both
async def test_one_that_was_there_before_the_orchestrator_is_taken_in(
    stock: Path, generation: str, tmp_path: Path
) -> None:
    async with house() as here:
        port = here.site.port  # free in a moment
    async with stock_worker(stock, generation, f"http://127.0.0.1:{port}"):
        await asyncio.sleep(2)
        async with house(port=port) as late:
            job = await late.run("echo", timeout_s=15, word="late")
            assert job.status is JobStatus.FINISHED


@both
async def test_one_that_stops_says_goodbye_and_leaves_nothing_behind(stock: Path, generation: str) -> None:
    async with house() as here:
        async with stock_worker(stock, generation, here.site.url) as process:
            job_id = await here.submit("slow", seconds=1)
            await here.taken(job_id)
            process.terminate()
            # what runs is finished before it leaves, and counts
            job = await here.director.wait(job_id, 5)
            assert (job.status, job.data) == (JobStatus.FINISHED, {"slept": True})
            await process.wait()
        await until(lambda: here.director.dispatcher.find("stock-1") is None)
        assert await here.director.workers.describe() == []


async def test_signatures_go_both_ways(stock: Path) -> None:
    secret = "a-secret-of-the-orchestrator"

    async with house(worker_require_signatures=True, orchestrator_secret_key=secret) as here:
        async with stock_worker(stock, "new", here.site.url, ORCHESTRATOR_SECRET_KEY=secret):
            job = await here.run("echo", half=0.5, whole=3.0, nothing=None, word="ü\n\u2028")
            assert job.status is JobStatus.FINISHED
            partial = await here.run("status", status="partial")
            assert partial.state == "half"
        async with stock_worker(stock, "old", here.site.url, worker_id="unsigned"):
            await asyncio.sleep(1.5)
            assert here.director.dispatcher.find("unsigned") is None


@both
async def test_beating_all_the_time_costs_it_no_slot(stock: Path, generation: str) -> None:
    """The older one loses a slot for good when it is told to stop a task while it sends the task's result."""

    async with (
        house() as here,
        stock_worker(
            stock,
            generation,
            here.site.url,
            SLOTS="2",
            HEARTBEAT_INTERVAL="0.01",
            WORKER_HEARTBEAT_COOLDOWN="0.01",
            WORKER_HEARTBEAT_DEBOUNCE_DELAY="0.001",
        ),
    ):
        await here.joined()
        job = await here.director.run_job("crowd", {"count": 300}, timeout_s=30)
        assert job.status is JobStatus.FINISHED
        connected = here.director.dispatcher.find("stock-1")
        assert connected is not None
        await until(lambda: not connected.attempts)


async def test_both_kinds_together_bring_a_crowd_home_through_three_restarts(
    stock: Path, tmp_path: Path
) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"

    async with house(store) as here:
        port, url = here.site.port, here.site.url
        job = await here.director.submit("crowd", {"count": COUNT})
    async with (
        stock_worker(stock, "old", url, "elder", RESULT_RETRY_INITIAL_DELAY="0.1"),
        stock_worker(stock, "new", url, "younger", RESULT_RETRY_INITIAL_DELAY="0.1"),
    ):
        for _ in range(3):
            async with house(store, port) as here:
                midway = await here.director.wait(job.id, 0.7)
                assert not midway.status.settled
            await asyncio.sleep(0.2)
        async with house(store, port) as here:
            ended = await here.director.wait(job.id, 60)
            assert (ended.status, ended.data["echoes"]) == (JobStatus.FINISHED, list(range(COUNT)))
            busy = {
                event.worker_id
                for event in await here.director.events(job.id, limit=20_000)
                if event.type is EventType.TASK_FINISHED
            }
            assert busy == {"elder", "younger"}
