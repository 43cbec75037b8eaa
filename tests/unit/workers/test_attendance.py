"""What heartbeats that lack an attempt mean. FENCES 10."""

import asyncio

from regista import EventType
from regista.model import AttemptState, Task
from regista.workers import attendance as module
from regista.workers.attendance import Attendance

OFFERED = Task(id="j_1_0", job_id="j", type="work", state=AttemptState.OFFERED)
STARTED = Task(id="j_1_0", job_id="j", type="work", state=AttemptState.STARTED)


def missing(
    attendance: Attendance,
    task: Task = OFFERED,
    begun: bool = False,
    elapsed: float = 0.0,
    patience_s: float | None = 45.0,
) -> EventType | None:
    return attendance.missing(task, begun, elapsed, patience_s)


def test_an_offer_is_undelivered_with_a_second_heartbeat_that_lacks_it_a_while_later() -> None:
    attendance = Attendance()

    assert missing(attendance, elapsed=10) is None
    assert missing(attendance, elapsed=12) is EventType.TASK_UNDELIVERED


def test_heartbeats_in_quick_succession_may_all_have_left_before_the_offer_came() -> None:
    attendance = Attendance()

    assert [missing(attendance, elapsed=at / 100) for at in range(200)] == [None] * 200
    assert missing(attendance, elapsed=2) is EventType.TASK_UNDELIVERED


def test_being_listed_once_makes_up_for_everything_before() -> None:
    attendance = Attendance()
    missing(attendance)
    attendance.present(OFFERED.attempt_id)

    assert missing(attendance, elapsed=60) is None


def test_what_has_started_is_lost_after_the_patience_and_never_called_undelivered() -> None:
    attendance = Attendance()

    assert [missing(attendance, STARTED, elapsed=at) for at in (0, 15, 30, 44)] == [None] * 4
    assert missing(attendance, STARTED, elapsed=45) is EventType.TASK_LOST


def test_evidence_that_is_not_stored_yet_counts_as_a_start() -> None:
    attendance = Attendance()

    assert [missing(attendance, begun=True) for _ in range(5)] == [None] * 5


def test_a_worker_that_says_itself_what_it_lost_is_waited_for() -> None:
    attendance = Attendance()

    assert [missing(attendance, STARTED, elapsed=at, patience_s=None) for at in (0, 10**6)] == [None] * 2


async def test_what_was_reported_is_not_missed_until_the_report_is_answered() -> None:
    attendance = Attendance()
    loop = asyncio.get_running_loop()
    first: asyncio.Future[None] = loop.create_future()
    again: asyncio.Future[None] = loop.create_future()
    attendance.reported(OFFERED.attempt_id, first)
    attendance.reported(OFFERED.attempt_id, again)
    assert [missing(attendance) for _ in range(3)] == [None] * 3
    first.set_result(None)
    await asyncio.sleep(0)
    assert attendance.is_reported(OFFERED.attempt_id)
    again.set_exception(ConnectionError())
    await asyncio.sleep(0)
    assert isinstance(again.exception(), ConnectionError)
    # then: the store does not have it, so it counts again
    assert [missing(attendance, elapsed=at) for at in (0, 2)] == [None, EventType.TASK_UNDELIVERED]


async def test_reports_that_are_answered_are_forgotten_now_and_then_and_the_others_never() -> None:
    attendance = Attendance()
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()
    attendance.reported("waiting-1", waiting)
    # when
    for number in range(3 * module._SWEEP_AT):
        answered: asyncio.Future[None] = loop.create_future()
        answered.set_result(None)
        attendance.reported(f"j{number}_1_0-1", answered)
    # then
    assert len(attendance._reports) <= module._SWEEP_AT
    assert attendance.is_reported("waiting-1")
    assert not attendance.is_reported("j0_1_0-1")
