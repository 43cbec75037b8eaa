"""How long a worker waits before it connects again."""

import asyncio
from typing import Any, cast

import pytest

from regista.clock import SystemClock
from regista.config import WorkerConfig
from regista.model import Task
from regista.sdk.connection import OrchestratorConnection
from regista.sdk.credentials import OrchestratorCredentials
from regista.sdk.http import OrchestratorHttp
from regista.sdk.registration import WorkerSession
from regista.sdk.targets import OrchestratorTarget
from regista.sdk.task_runner import TaskRunner
from regista.sdk.transports.base import WorkerRuntime
from regista.worker import Worker


class Listener:
    """Takes reports, and acknowledges nothing."""

    def started(self, running_task: Any) -> None: ...
    def progress(self, *report: Any) -> None: ...
    def finished(self, running_task: Any) -> None: ...


def connection(lease_s: float = 3.0) -> tuple[OrchestratorConnection, TaskRunner]:
    """A connection that had a session with this lease."""
    config = WorkerConfig()
    worker = Worker("w")
    runner = TaskRunner(worker, "w", 1, SystemClock(), Listener())
    runtime = WorkerRuntime(runner, lambda: ())
    credentials = OrchestratorCredentials("w", config)
    client = cast("Any", None)
    made = OrchestratorConnection(
        OrchestratorTarget("http://o"),
        "w",
        config,
        client,
        credentials,
        runtime,
        cast("Any", None),
        lambda: None,
    )
    made.session = WorkerSession(OrchestratorHttp(client, "http://o", credentials), "w", "c", 1, lease_s)
    return made, runner


def test_pauses_grow_to_half_a_minute() -> None:
    made, _ = connection()
    pauses = [made._pause_s() for _ in range(14)]

    assert pauses[0] <= 0.05
    assert max(pauses[:5]) < 1.0
    assert 20.0 <= pauses[-1] <= 30.0


@pytest.mark.parametrize("lease_s", [3.0, 30.0])
async def test_a_worker_that_holds_something_tries_several_times_within_a_lease(lease_s: float) -> None:
    made, runner = connection(lease_s)
    runner.accept([Task(id="j_1_0", job_id="j", type="unknown", params={})], "c/w")
    await asyncio.sleep(0)

    assert runner.held() == ["j_1_0-1"]
    assert max(made._pause_s() for _ in range(14)) <= lease_s / 6
