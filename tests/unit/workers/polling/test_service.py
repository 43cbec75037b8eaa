"""Workers that poll. FENCES 9 to 14, on a clock that the test moves."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import pytest

from regista import EventType, JobStatus, RetryPolicy
from regista.model import AttemptState, ResultVerdict, Task, TaskResult
from regista.testing.orchestrator import TestOrchestrator
from regista.workers.polling.service import PollHeartbeatReply, PollingService, Registered, UnknownWorker
from regista.workers.protocol.messages import Heartbeat, Registration
from tests.support import fan_out, one_task, only, types

T = TypeVar("T")


class Hall:
    """A desk, and workers that come to it."""

    def __init__(self, kit: TestOrchestrator) -> None:
        self.kit = kit
        director = kit.director
        self.desk = PollingService(director.workers, director.dispatcher, kit.clock, 30.0, 45.0)

    def call(self, ask: Callable[[], Awaitable[T]]) -> T:
        found = self.kit.call(ask)
        self.kit.skip(0)
        return found

    def register(self, worker_id: str = "w", **members: Any) -> Registered:
        members = {"supported_skills": ["work"], "resources": {"max_concurrent_tasks": 4}, **members}
        said = msgspec.convert({"worker_id": worker_id, **members}, Registration)
        return self.call(lambda: self.desk.register(said))

    def beat(
        self, *running: str, worker_id: str = "w", version: str | None = None, **members: Any
    ) -> PollHeartbeatReply:
        members = {"status": "idle", "supported_skills": ["work"], **members}
        said = msgspec.convert({"current_tasks": list(running), **members}, Heartbeat)
        return self.call(lambda: self.desk.beat(worker_id, said, self.kit.clock.elapsed(), version))

    def poll(
        self, worker_id: str = "w", timeout_s: float = 0.0, *, lost: bool = False, **asked: Any
    ) -> list[Task]:
        """What the poll gets. `lost`: the connection breaks before the answer has left."""

        async def ask() -> list[Task]:
            try:
                async with self.desk.poll(worker_id, timeout_s, **asked) as tasks:
                    found = list(tasks)
                    if lost:
                        raise ConnectionResetError
            except ConnectionResetError:
                pass
            return found

        return self.call(ask)

    def finish(self, task: Task, worker_id: str = "w", **members: Any) -> ResultVerdict:
        result = TaskResult(task_id=task.attempt_id, job_id=task.job_id, worker_id=worker_id, **members)
        verdict, _ = self.call(lambda: self.desk.result(result))
        return verdict

    def free(self, worker_id: str = "w") -> int:
        """Slots that hold nothing."""
        connected = self.kit.director.dispatcher.find(worker_id)
        assert connected is not None
        return connected.worker.capacity - len(connected.attempts)


hasty = one_task(name="hasty", attempt_timeout=5, retry=RetryPolicy(first_s=0.05, jitter=0))


@pytest.fixture
def hall() -> Iterator[Hall]:
    with TestOrchestrator(one_task(), fan_out(3), one_task(name="single"), hasty) as kit:
        yield Hall(kit)


class Line:
    """A command socket that notes what is said on it."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.closed: list[int] = []

    def stop(self, attempt_ids: Sequence[str]) -> None:
        self.stopped += attempt_ids

    def close(self, code: int, reason: str) -> None:
        self.closed.append(code)


# -- polls -------------------------------------------------------------------------------------------


def test_a_worker_is_offered_something_only_while_a_poll_of_its_is_open(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    hall.kit.skip(10)
    (waiting,) = hall.call(lambda: hall.kit.director.storage.tasks_of(job.id))
    assert waiting.state is AttemptState.QUEUED

    (task,) = hall.poll(timeout_s=1)
    assert hall.finish(task) is ResultVerdict.ACCEPTED
    assert hall.kit.get(job).status is JobStatus.FINISHED


def test_a_poll_waits_until_something_comes_or_its_time_is_up(hall: Hall) -> None:
    hall.register()
    began = hall.kit.now
    assert hall.poll(timeout_s=30) == []
    assert (hall.kit.now - began).total_seconds() == pytest.approx(30, abs=0.1)

    async def both() -> list[Task]:
        async with asyncio.TaskGroup() as group:
            group.create_task(_submit_after(hall, 5))
            async with hall.desk.poll("w", 30) as tasks:
                return list(tasks)

    began = hall.kit.now
    assert len(hall.call(both)) == 1
    assert (hall.kit.now - began).total_seconds() == pytest.approx(5, abs=0.1)


async def _submit_after(hall: Hall, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await hall.kit.director.submit("single")


def test_a_poll_gets_one_task_unless_it_asks_for_more(hall: Hall) -> None:
    hall.register()
    hall.kit.submit("script")
    assert len(hall.poll(timeout_s=1)) == 1
    assert len(hall.poll(timeout_s=1, limit=10)) == 2


def test_what_a_broken_poll_had_in_hand_goes_to_the_next_one_and_not_to_anybody_else(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    (lost,) = hall.poll(timeout_s=1, lost=True)
    (task,) = hall.poll(timeout_s=1)
    assert task.attempt_id == lost.attempt_id
    assert hall.finish(task) is ResultVerdict.ACCEPTED
    assert only(hall.kit.events(job), EventType.TASK_UNDELIVERED) == []


def test_a_poll_is_a_sign_of_life(hall: Hall) -> None:
    hall.register()
    for _ in range(5):
        assert hall.poll(timeout_s=30) == []
    hall.kit.skip(14)  # 44 s since the last one began
    assert hall.kit.director.dispatcher.find("w") is not None
    hall.kit.skip(3)
    assert hall.kit.director.dispatcher.find("w") is None


def test_a_poll_says_what_could_be_started_and_only_that_is_given_to_it(hall: Hall) -> None:
    hall.register(supported_skills=["work", "other"])
    hall.kit.submit("single")
    assert hall.poll(timeout_s=1, available=("other",)) == []
    assert len(hall.poll(timeout_s=1, available=("other", "work"))) == 1


def test_a_worker_that_was_full_and_polls_again_is_not_full_any_more(hall: Hall) -> None:
    hall.register()
    hall.beat(supported_skills=[], status="busy")
    hall.kit.submit("single")
    assert len(hall.poll(timeout_s=1)) == 1


# -- 10: delivered is not started --------------------------------------------------------------------


def test_missing_from_two_heartbeats_is_undelivered_and_its_slot_is_free_again(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    (task,) = hall.poll(timeout_s=1)
    hall.kit.skip(1)
    hall.beat()
    assert only(hall.kit.events(job), EventType.TASK_UNDELIVERED) == []
    hall.kit.skip(2)
    hall.beat()
    assert len(only(hall.kit.events(job), EventType.TASK_UNDELIVERED)) == 1
    assert hall.free() == 4
    (again,) = hall.poll(timeout_s=1)
    assert (again.id, again.attempt) == (task.id, 2)
    assert hall.finish(task) is ResultVerdict.STALE_TASK
    assert hall.finish(again) is ResultVerdict.ACCEPTED


def test_a_heartbeat_that_began_before_the_task_left_cannot_know_it(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    began = hall.kit.clock.elapsed()
    (task,) = hall.poll(timeout_s=1)
    said = msgspec.convert({"status": "idle", "current_tasks": []}, Heartbeat)
    for _ in range(5):
        hall.call(lambda: hall.desk.beat("w", said, began))
    assert only(hall.kit.events(job), EventType.TASK_UNDELIVERED) == []
    assert hall.finish(task) is ResultVerdict.ACCEPTED


def test_heartbeats_in_quick_succession_count_as_one(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    hall.poll(timeout_s=1)
    hall.kit.skip(1)
    for _ in range(7):
        hall.beat()
        hall.kit.skip(0.2)
    assert only(hall.kit.events(job), EventType.TASK_UNDELIVERED) == []
    hall.kit.skip(1)
    hall.beat()
    assert len(only(hall.kit.events(job), EventType.TASK_UNDELIVERED)) == 1


def test_a_task_that_nobody_fetches_is_taken_back_and_never_handed_out_late(hall: Hall) -> None:
    hall.register()
    hall.register("other")
    job = hall.kit.submit("single")
    (lost,) = hall.poll(timeout_s=1, lost=True)
    hall.kit.skip(1)
    hall.beat()
    hall.kit.skip(2)
    hall.beat()
    # then: somebody else does it, and the first one gets nothing stale
    (task,) = hall.poll("other", timeout_s=1)
    assert task.attempt == 2
    assert hall.poll(timeout_s=1) == []
    assert hall.finish(task, "other") is ResultVerdict.ACCEPTED
    assert hall.kit.get(job).status is JobStatus.FINISHED
    assert lost.attempt == 1


def test_a_buried_worker_that_asks_again_gets_nothing_that_is_over(hall: Hall) -> None:
    # given: an offer whose poll broke waits in the box of a worker that is then silent for too long
    hall.register()
    job = hall.kit.submit("single")
    (lost,) = hall.poll(timeout_s=1, lost=True)
    hall.kit.skip(50)
    hall.register("other")
    (task,) = hall.poll("other", timeout_s=1)
    assert (lost.attempt, task.attempt) == (1, 2)
    # when it comes back, with or without saying what it can do
    assert hall.poll(timeout_s=1) == []
    assert hall.poll(timeout_s=1, available=("work",)) == []
    # then
    assert hall.finish(task, "other") is ResultVerdict.ACCEPTED
    assert hall.kit.get(job).status is JobStatus.FINISHED


def test_a_worker_that_comes_back_in_time_gets_what_waits_in_its_box_once(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    (lost,) = hall.poll(timeout_s=1, lost=True)
    hall.kit.director.dispatcher.disconnect("w", lost.session)
    # when: we know it by its poll only
    (task,) = hall.poll(timeout_s=1, available=("work",))
    assert task.attempt_id == lost.attempt_id
    assert hall.poll(timeout_s=1, available=("work",)) == []
    assert hall.finish(task) is ResultVerdict.ACCEPTED
    assert hall.kit.get(job).status is JobStatus.FINISHED


def test_an_attempt_that_ran_out_of_time_in_the_box_is_not_handed_out(hall: Hall) -> None:
    hall.register()
    hall.kit.submit("hasty")
    hall.poll(timeout_s=1, lost=True)
    hall.kit.skip(6)
    assert [task.attempt for task in hall.poll(timeout_s=1)] == [2]


def test_a_clock_that_is_set_back_does_not_stop_redelivery(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    hall.poll(timeout_s=1)
    hall.kit.skip(1)
    hall.kit.clock.jump(timedelta(hours=-1))
    hall.beat()
    hall.kit.skip(2)
    hall.beat()
    assert len(only(hall.kit.events(job), EventType.TASK_UNDELIVERED)) == 1


def test_a_started_task_that_is_missing_for_a_whole_lease_is_lost(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    (task,) = hall.poll(timeout_s=1)
    hall.beat(task.attempt_id)
    hall.kit.skip(2)  # that it has started is written down
    for _ in range(3):  # the worker was restarted, and registers without a list
        hall.register()
        hall.kit.skip(14)
        hall.beat()
    assert only(hall.kit.events(job), EventType.TASK_LOST) == []
    for _ in range(2):
        hall.kit.skip(14)
        hall.beat()
    assert len(only(hall.kit.events(job), EventType.TASK_LOST)) == 1
    assert hall.free() == 4


def test_a_result_that_comes_a_little_after_its_task_was_last_listed_counts(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    (task,) = hall.poll(timeout_s=1)
    hall.beat(task.attempt_id)
    for _ in range(3):  # the newer SDK does not list what is only waiting to be sent
        hall.kit.skip(10)
        hall.beat()
    assert hall.finish(task) is ResultVerdict.ACCEPTED
    assert hall.kit.get(job).status is JobStatus.FINISHED


# -- 11: registering again ---------------------------------------------------------------------------


def test_a_registration_without_a_list_loses_nothing(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("script")
    tasks = hall.poll(timeout_s=1, limit=3)
    hall.beat(tasks[0].attempt_id)
    hall.kit.skip(2)
    arrival = hall.register()
    assert arrival.stop == ()
    assert hall.poll(timeout_s=1) == []
    for task in tasks:
        assert hall.finish(task) is ResultVerdict.ACCEPTED
    assert hall.kit.get(job).status is JobStatus.FINISHED
    assert "task_lost" not in types(hall.kit.events(job))


def test_what_had_not_left_when_it_registers_again_is_handed_out_under_the_new_session(hall: Hall) -> None:
    hall.register()
    hall.kit.submit("single")
    (lost,) = hall.poll(timeout_s=1, lost=True)
    hall.register()
    (task,) = hall.poll(timeout_s=1)
    assert task.attempt_id == lost.attempt_id
    assert hall.finish(task) is ResultVerdict.ACCEPTED


def test_a_registration_with_a_list_says_what_to_stop(hall: Hall) -> None:
    assert hall.register(current_tasks=["gone_1_0-1"]).stop == ("gone_1_0-1",)
    assert hall.register(current_tasks=["gone_1_0-1"], cluster_id="another").stop == ()


def test_an_older_session_of_ours_is_told_to_register(hall: Hall) -> None:
    old = hall.register(current_tasks=[]).worker.session
    new = hall.register(current_tasks=[]).worker.session
    with pytest.raises(UnknownWorker):
        hall.beat(session=old)
    with pytest.raises(UnknownWorker):
        hall.poll(number=old)
    assert hall.beat(session=new).full_sync is False


def test_a_new_registration_sends_the_open_polls_home(hall: Hall) -> None:
    hall.register()

    async def both() -> float:
        began = hall.kit.clock.elapsed()
        async with asyncio.TaskGroup() as group:
            group.create_task(_register_after(hall, 3))
            async with hall.desk.poll("w", 30) as tasks:
                assert tasks == []
                return hall.kit.clock.elapsed() - began

    assert hall.call(both) == pytest.approx(3, abs=0.1)


async def _register_after(hall: Hall, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await hall.desk.register(msgspec.convert({"worker_id": "w"}, Registration))


# -- strangers ---------------------------------------------------------------------------------------


def test_a_stranger_is_taken_in_by_what_its_poll_says(hall: Hall) -> None:
    hall.kit.submit("single")
    (task,) = hall.poll("stranger", timeout_s=1, available=("work",))
    assert hall.finish(task, "stranger") is ResultVerdict.ACCEPTED


def test_a_stranger_that_only_polls_is_served_as_soon_as_a_heartbeat_says_what_it_can(hall: Hall) -> None:
    hall.kit.submit("single")
    assert hall.poll("stranger", timeout_s=1) == []
    said = msgspec.convert({"status": "idle", "supported_skills": ["work"]}, Heartbeat)

    async def both() -> list[Task]:
        async with asyncio.TaskGroup() as group:
            group.create_task(hall.desk.beat("stranger", said, hall.kit.clock.elapsed()))
            async with hall.desk.poll("stranger", 30) as tasks:
                return list(tasks)

    assert len(hall.call(both)) == 1


def test_a_strangers_heartbeat_takes_it_in_and_asks_for_more(hall: Hall) -> None:
    assert hall.beat(worker_id="stranger").full_sync is True
    hall.kit.submit("single")
    assert len(hall.poll("stranger", timeout_s=1)) == 1


def test_an_sdk_that_can_is_told_to_register_and_works_meanwhile(hall: Hall) -> None:
    with pytest.raises(UnknownWorker):
        hall.beat(version="1.0b17", skills_hash="1", supported_skills=None, available_skills=["work"])
    hall.kit.submit("single")
    assert len(hall.poll(timeout_s=1)) == 1
    hall.register()
    assert hall.beat(version="1.0b17").full_sync is False


def test_one_that_beats_on_without_registering_is_let_be_after_a_while(hall: Hall) -> None:
    for _ in range(4):
        with pytest.raises(UnknownWorker):
            hall.beat(version="1.0b17")
        hall.kit.skip(15)
    assert hall.beat(version="1.0b17").full_sync is True


def test_after_our_restart_a_poll_worker_keeps_what_it_runs(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    (task,) = hall.poll(timeout_s=1)
    hall.beat(task.attempt_id)
    hall.kit.skip(2)
    hall.kit.crash()
    again = Hall(hall.kit)
    again.kit.skip(40)  # longer than our own workers' lease, and not longer than its own
    assert again.beat(task.attempt_id).stop == ()
    again.kit.skip(20)
    assert again.finish(task) is ResultVerdict.ACCEPTED
    assert again.kit.get(job).status is JobStatus.FINISHED


# -- leaving -----------------------------------------------------------------------------------------


def test_offline_with_nothing_in_its_hands_is_goodbye(hall: Hall) -> None:
    hall.register()
    hall.beat(status="offline", supported_skills=[])
    assert hall.kit.director.dispatcher.find("w") is None
    assert hall.call(hall.kit.director.workers.describe) == []


def test_offline_lets_what_is_listed_finish_and_takes_the_rest_back(hall: Hall) -> None:
    hall.register()
    hall.register("other")
    job = hall.kit.submit("script")
    mine = hall.poll(timeout_s=1, limit=2)
    hall.beat(mine[0].attempt_id, status="offline", supported_skills=[])
    assert hall.poll(timeout_s=1) == []
    hall.kit.skip(3)
    others = hall.poll("other", timeout_s=1, limit=5)
    assert sorted(task.id for task in others) == sorted(
        f"{job.id}_1_{n}" for n in range(3) if f"{job.id}_1_{n}" != mine[0].id
    )
    assert hall.finish(mine[0]) is ResultVerdict.ACCEPTED
    assert hall.kit.director.dispatcher.find("w") is None
    for task in others:
        hall.finish(task, "other")
    assert hall.kit.get(job).status is JobStatus.FINISHED


def test_one_of_ours_that_leaves_hands_everything_back_at_once(hall: Hall) -> None:
    session = hall.register(current_tasks=[]).worker.session
    hall.register("other")
    hall.kit.submit("single")
    hall.poll(timeout_s=1)
    hall.beat(status="offline", session=session, supported_skills=None)
    assert len(hall.poll("other", timeout_s=1)) == 1


def test_draining_gets_nothing_new_until_it_is_over(hall: Hall) -> None:
    hall.register()
    hall.beat(status="draining")
    hall.kit.submit("single")
    assert hall.poll(timeout_s=1) == []
    hall.beat(status="idle")
    assert len(hall.poll(timeout_s=1)) == 1


def test_what_an_operator_drains_its_heartbeats_do_not_take_back(hall: Hall) -> None:
    hall.register()
    assert hall.kit.director.workers.drain("w") is True
    hall.beat(status="idle")
    (facts,) = hall.call(hall.kit.director.workers.describe)
    assert facts.state == "draining"
    assert hall.kit.director.workers.drain("nobody") is False


def test_a_worker_that_falls_silent_is_lost_after_its_own_lease(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    hall.poll(timeout_s=1)
    hall.kit.skip(44)
    assert only(hall.kit.events(job), EventType.TASK_LOST) == []
    hall.kit.skip(3)
    assert len(only(hall.kit.events(job), EventType.TASK_LOST)) == 1


# -- cancel ------------------------------------------------------------------------------------------


def test_a_cancel_goes_over_the_socket_and_with_every_heartbeat_until_it_is_acknowledged(hall: Hall) -> None:
    hall.register()
    line = Line()
    hall.call(lambda: hall.desk.connect("w", line))
    job = hall.kit.submit("single")
    (task,) = hall.poll(timeout_s=1)
    hall.kit.cancel(job)
    hall.kit.skip(0)
    assert line.stopped == [task.attempt_id]
    for _ in range(2):
        assert hall.beat(task.attempt_id).stop == (task.attempt_id,)
    assert hall.finish(task, status="cancelled") is ResultVerdict.ACCEPTED
    assert hall.kit.get(job).status is JobStatus.CANCELLED
    assert hall.beat(task.attempt_id).stop == ()  # it has told; it only does not know yet that we heard


def test_a_cancel_is_said_again_to_a_socket_that_opens_later(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    (task,) = hall.poll(timeout_s=1)
    hall.kit.cancel(job)
    line = Line()
    hall.call(lambda: hall.desk.connect("w", line))
    assert line.stopped == [task.attempt_id]


def test_sockets_without_a_name_hear_every_cancel(hall: Hall) -> None:
    hall.register()
    lines = [Line(), Line()]
    for line in lines:
        hall.call(lambda line=line: hall.desk.connect(None, line))  # type: ignore[misc]
    job = hall.kit.submit("single")
    (task,) = hall.poll(timeout_s=1)
    hall.kit.cancel(job)
    hall.kit.skip(0)
    assert [line.stopped for line in lines] == [[task.attempt_id]] * 2
    assert [line.closed for line in lines] == [[], []]


def test_a_task_that_has_not_left_is_cancelled_at_once(hall: Hall) -> None:
    hall.register()
    job = hall.kit.submit("single")
    hall.poll(timeout_s=1, lost=True)
    hall.kit.cancel(job)
    hall.kit.skip(0)
    assert hall.kit.get(job).status is JobStatus.CANCELLED
    assert hall.free() == 4
    assert hall.poll(timeout_s=1) == []


def test_a_second_socket_closes_the_first(hall: Hall) -> None:
    hall.register()
    first, second = Line(), Line()
    for line in (first, second):
        hall.call(lambda line=line: hall.desk.connect("w", line))  # type: ignore[misc]
    hall.desk.disconnect("w", first)
    assert (first.closed, second.closed) == ([1008], [])
    hall.call(hall.desk.close)
    assert second.closed == [1001]


def test_when_we_stop_every_poll_is_answered(hall: Hall) -> None:
    hall.register()

    async def both() -> float:
        began = hall.kit.clock.elapsed()
        async with asyncio.TaskGroup() as group:
            group.create_task(_close_after(hall, 2))
            async with hall.desk.poll("w", 30) as tasks:
                assert tasks == []
                return hall.kit.clock.elapsed() - began

    assert hall.call(both) == pytest.approx(2, abs=0.1)
    assert hall.poll(timeout_s=30) == []  # and none is kept waiting after that


async def _close_after(hall: Hall, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await hall.desk.close()


def test_progress_counts_only_from_the_worker_that_has_the_attempt(hall: Hall) -> None:
    hall.register()
    hall.kit.submit("single")
    (task,) = hall.poll(timeout_s=1)
    service = hall.kit.director.workers
    service.progress(task.attempt_id, 0.9, "not mine", worker_id="other")
    hall.call(service.write_signs)
    (_, (stored,)) = hall.call(lambda: hall.kit.director.storage.load([], [task.id]))
    assert stored is not None
    assert (stored.state, stored.progress) == (AttemptState.OFFERED, None)
    service.progress(task.attempt_id, 0.5, "mine", worker_id="w")
    hall.call(service.write_signs)
    (_, (stored,)) = hall.call(lambda: hall.kit.director.storage.load([], [task.id]))
    assert stored is not None
    assert (stored.state, stored.progress) == (AttemptState.STARTED, 0.5)


def test_a_worker_that_polls_all_the_time_renews_its_lease_now_and_then_and_keeps_it(hall: Hall) -> None:
    # given
    number = hall.register().worker.session
    # when: it asks more often than its lease of 45 seconds needs to be renewed
    for _ in range(300):
        hall.poll(number=number)
        hall.kit.skip(0.4)
    # then
    (facts,) = hall.call(hall.kit.director.workers.describe)
    assert facts.last_seen is not None
    assert hall.kit.clock.now() - facts.last_seen < timedelta(seconds=2)
    assert facts.state != "silent"


def test_a_worker_that_was_buried_is_not_taken_for_alive_though_it_was_heard_a_moment_ago(hall: Hall) -> None:
    # given
    number = hall.register().worker.session
    hall.poll()
    # when
    hall.call(lambda: hall.kit.director.workers.remove("w", number, lapsed=False))
    # then
    with pytest.raises(UnknownWorker):
        hall.poll(number=number)
