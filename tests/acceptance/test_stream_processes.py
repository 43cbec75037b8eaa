"""Worker processes: drained, killed, stopped in their tracks."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from regista import EventType, JobStatus
from regista.worker import Worker
from tests.acceptance.stream_kit import SHORT_LEASE_S, House, WorkerProcess, connected, play, until
from tests.support import one_task, script

pytestmark = pytest.mark.timeout(20)


def second_worker() -> tuple[Worker, list[int]]:
    worker = Worker("second")
    runs: list[int] = []

    @worker.task("work")
    async def work(params: dict[str, Any]) -> dict[str, Any]:
        runs.append(1)
        return {"by": "second"}

    return worker, runs


def test_sigterm_drains_what_runs_is_finished_and_nothing_new_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with House() as house, WorkerProcess(house.url, tmp_path / "notes") as process:
            job = await house.submit({"seconds": 1.0})
            await process.until_line("began 1")
            process.send(signal.SIGTERM)
            await asyncio.sleep(0.3)
            late = await house.submit()
            assert (await house.wait(job)).data == {"by": "program", "attempt": 1}
            assert await process.process.wait() == 0
            assert process.lines() == ["began 1", "ended 1", "out"]
            assert (await house.director.get(late.id)).status is JobStatus.WAITING_FOR_WORKER

    play(main(), 15)


def test_sigterm_hands_back_what_does_not_finish_within_the_grace(tmp_path: Path) -> None:
    async def main() -> None:
        other, _ = second_worker()
        house, grace = House(), {"WORKER_SHUTDOWN_TIMEOUT": "0.5"}
        async with house, WorkerProcess(house.url, tmp_path / "notes", **grace) as process:
            job = await house.submit({"seconds": 60})
            await process.until_line("began 1")
            async with connected(other, house.url):
                process.send(signal.SIGTERM)
                assert (await house.wait(job)).data == {"by": "second"}
                assert await process.process.wait() == 0

    play(main(), 15)


def test_a_second_signal_stops_now_even_a_thread_that_never_looks(tmp_path: Path) -> None:
    def start(context: Any, actions: Any) -> None:
        actions.dispatch_task("stubborn", {}, transitions={"success": "done"})

    async def main() -> None:
        house = House(script(start, "done"))
        async with house, WorkerProcess(house.url, tmp_path / "notes") as process:
            await house.submit()
            await process.until_line("stubborn")
            process.send(signal.SIGTERM)
            await asyncio.sleep(0.3)
            assert process.process.returncode is None
            process.send(signal.SIGINT)
            async with asyncio.timeout(4):
                assert await process.process.wait() == 0

    play(main(), 15)


@pytest.mark.slow
def test_a_function_that_swallows_its_cancellation_does_not_keep_the_process(tmp_path: Path) -> None:
    def start(context: Any, actions: Any) -> None:
        actions.dispatch_task("swallowing", {}, transitions={"success": "done"})

    async def main() -> None:
        house, grace = House(script(start, "done")), {"WORKER_SHUTDOWN_TIMEOUT": "0.1"}
        async with house, WorkerProcess(house.url, tmp_path / "notes", **grace) as process:
            await house.submit()
            await process.until_line("swallowing")
            process.send(signal.SIGTERM)
            assert process.process.stderr is not None
            said = (await process.process.stderr.read()).decode()
            assert await process.process.wait() == 0
            assert process.lines() == ["swallowing", "swallowed", "swallowed", "out"]
            assert "task-swallowing swallows its cancellation" in said

    play(main(), 15)


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["true", "false"])
def test_an_async_function_that_blocks_for_longer_than_the_lease_is_told_of(
    tmp_path: Path, streams: str
) -> None:
    def start(context: Any, actions: Any) -> None:
        actions.dispatch_task("blocking", {"seconds": 3}, transitions={"success": "done"})

    async def main() -> None:
        house = House(script(start, "done"), lease_s=SHORT_LEASE_S, poll_lease_s=SHORT_LEASE_S)
        environ = {"WORKER_ENABLE_WEBSOCKETS": streams, "WORKER_HEARTBEAT_INTERVAL": "0.5"}
        async with house, WorkerProcess(house.url, tmp_path / "notes", **environ) as process:
            await house.submit()
            await process.until_line("blocking")
            await until(lambda: process.lines().count("blocking") > 1, 12)  # it was lost, and is tried again
            process.process.kill()
            assert process.process.stderr is not None
            said = (await process.process.stderr.read()).decode()
            assert "event loop blocked" in said
            assert "silent" not in said

    play(main(), 18)


def test_a_worker_killed_with_minus_nine_is_noticed_by_its_lease_and_the_task_done_elsewhere(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        other, runs = second_worker()
        async with House(lease_s=SHORT_LEASE_S) as house:
            async with WorkerProcess(house.url, tmp_path / "notes") as process:
                job = await house.submit({"seconds": 60})
                await process.until_line("began 1")
                process.send(signal.SIGKILL)
                await process.process.wait()
                async with connected(other, house.url):
                    assert (await house.wait(job, 8)).data == {"by": "second"}
            assert runs == [1]
            assert EventType.TASK_LOST.value in await house.events(job)

    play(main(), 15)


def test_a_worker_stopped_past_its_lease_comes_late_and_its_result_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        other, runs = second_worker()
        house = House(lease_s=SHORT_LEASE_S)
        async with house, WorkerProcess(house.url, tmp_path / "notes", "sleepy") as process:
            job = await house.submit({"seconds": 0.5})
            await process.until_line("began 1")
            process.send(signal.SIGSTOP)
            async with connected(other, house.url):
                ended = await house.wait(job, 8)
                assert (ended.data, runs) == ({"by": "second"}, [1])
                process.send(signal.SIGCONT)
                await process.until_line("ended 1")
                # It comes back by itself, hears that its result is not wanted, and has a free slot again.
                dispatcher = house.director.dispatcher
                await until(
                    lambda: (connected := dispatcher.find("sleepy")) is not None and connected.free == 10
                )
                happened = await house.events(job)
                assert happened.count(EventType.TASK_FINISHED.value) == 1
                assert (await house.director.get(job.id)).data == {"by": "second"}

    play(main(), 15)


def test_a_worker_process_may_be_started_before_the_orchestrator(tmp_path: Path) -> None:
    async def main() -> None:
        house = House(one_task())
        async with house:
            pass
        async with WorkerProcess(house.url, tmp_path / "notes") as process:
            await asyncio.sleep(1.0)
            async with house:
                job = await house.run(timeout_s=8)
                assert job.data == {"by": "program", "attempt": 1}
            process.send(signal.SIGTERM)
            _, told = await process.process.communicate()
        text = told.decode()
        assert text.count("cannot be reached") <= 2  # before, and when it went away again
        assert text.count("connected to") == 1

    play(main(), 15)


def test_the_token_that_a_local_orchestrator_leaves_is_found_even_when_it_comes_later(tmp_path: Path) -> None:
    async def main() -> None:
        state = tmp_path / "state"
        house = House(worker_token="", state_dir=str(state))
        async with house:
            pass
        (state / "worker.token").unlink()
        environ = {"WORKER_TOKEN": "", "REGISTA_DIR": str(state)}
        async with WorkerProcess(house.url, tmp_path / "notes", **environ):
            await asyncio.sleep(0.5)
            async with house:
                assert (await house.run(timeout_s=8)).status is JobStatus.FINISHED

    play(main(), 15)
