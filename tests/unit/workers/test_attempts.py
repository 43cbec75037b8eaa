"""What heartbeats that lack an attempt mean, and results on their way. FENCES 10."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from regista import EventType
from regista.engines.base import TaskEngine
from regista.model import AttemptState, ResultVerdict, Task, TaskResult
from regista.testing.clock import Clock
from regista.workers.attempts import AttemptTracker

OFFERED = Task(id="j_1_0", job_id="j", type="work", state=AttemptState.OFFERED)
STARTED = Task(id="j_1_0", job_id="j", type="work", state=AttemptState.STARTED)
RESULT = TaskResult(task_id=OFFERED.attempt_id, job_id="j", worker_id="w")


class Engine(TaskEngine):
    """An engine that commits a result when the test says so."""

    def __init__(self) -> None:
        self.verdicts: list[asyncio.Future[ResultVerdict]] = []

    def deliver(self, result: TaskResult) -> "asyncio.Future[ResultVerdict]":
        self.verdicts.append(asyncio.get_running_loop().create_future())
        return self.verdicts[-1]

    async def signal_tasks(self, task_ids: Sequence[str], decide: Any) -> int:
        return 0

    async def write(self, step: Any) -> bool:
        return True

    async def recheck(self) -> int:
        return 0

    def run_soon(self, work: Coroutine[Any, Any, None], action: str) -> None:
        work.close()


class Hall:
    """A tracker on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.engine = Engine()
        self.tracker = AttemptTracker(self.engine, self.clock)

    def missing(
        self, after_s: float = 0.0, task: Task = OFFERED, patience_s: float | None = 45.0
    ) -> EventType | None:
        self.clock.move(after_s)
        return self.tracker.missing(task, patience_s)


def test_an_offer_is_undelivered_with_a_second_heartbeat_that_lacks_it_a_while_later() -> None:
    hall = Hall()
    assert hall.missing() is None
    assert hall.missing(2.1) is EventType.TASK_UNDELIVERED


def test_heartbeats_in_quick_succession_may_all_have_left_before_the_offer_came() -> None:
    hall = Hall()
    assert [hall.missing(0.01) for _ in range(190)] == [None] * 190
    assert hall.missing(0.2) is EventType.TASK_UNDELIVERED


def test_being_listed_once_makes_up_for_everything_before() -> None:
    hall = Hall()
    hall.missing()
    hall.clock.move(60)
    hall.tracker.seen(OFFERED)
    assert hall.missing() is None


def test_what_has_started_is_lost_after_the_patience_and_never_called_undelivered() -> None:
    hall = Hall()
    assert [hall.missing(after_s, STARTED) for after_s in (0, 15, 15, 14)] == [None] * 4
    assert hall.missing(1.1, STARTED) is EventType.TASK_LOST


def test_evidence_that_is_not_stored_yet_counts_as_a_start() -> None:
    hall = Hall()
    hall.tracker.started(OFFERED.attempt_id)
    assert [hall.missing(5) for _ in range(5)] == [None] * 5
    hall.tracker.forget(OFFERED.attempt_id)
    assert [hall.missing(after_s) for after_s in (0, 2.1)] == [None, EventType.TASK_UNDELIVERED]


def test_a_worker_that_reports_itself_what_it_lost_is_waited_for() -> None:
    hall = Hall()
    assert [hall.missing(after_s, STARTED, None) for after_s in (0, 10**6)] == [None] * 2


async def test_what_was_reported_is_not_missed_until_the_report_is_answered() -> None:
    hall = Hall()
    hall.tracker.report(RESULT)
    hall.tracker.report(RESULT)
    first, again = hall.engine.verdicts
    assert [hall.missing(5) for _ in range(3)] == [None] * 3
    first.set_result(ResultVerdict.ACCEPTED)
    await asyncio.sleep(0)
    assert hall.tracker.is_reported(OFFERED.attempt_id)
    again.set_exception(ConnectionError())
    await asyncio.sleep(0)
    assert isinstance(again.exception(), ConnectionError)
    # then: the store does not have it, so it counts again
    assert [hall.missing(after_s) for after_s in (0, 2.1)] == [None, EventType.TASK_UNDELIVERED]


async def test_reports_that_are_answered_are_forgotten_and_the_others_are_not() -> None:
    hall = Hall()
    hall.tracker.report(RESULT)
    for number in range(10):
        hall.tracker.report(TaskResult(task_id=f"j_1_{number + 1}-1", job_id="j", worker_id="w"))
        hall.engine.verdicts[-1].set_result(ResultVerdict.ACCEPTED)
    await asyncio.sleep(0)
    assert list(hall.tracker._reports) == [OFFERED.attempt_id]
    assert hall.tracker.is_reported(OFFERED.attempt_id)
