"""Workers come and go. FENCES 9 to 14."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from regista import EventType, JobStatus, RetryPolicy, Worker
from regista.dispatch.connected import CallbackConnection
from regista.model import AttemptState, ResultVerdict, Task
from regista.model import Worker as WorkerRecord
from regista.testing.orchestrator import TestOrchestrator
from tests.support import Puppet, fan_out, fault, one_task, only, script, types


def stored(kit: TestOrchestrator, task: Task) -> Task:
    """The task as it is in the store."""
    (found,) = kit.call(lambda: kit.director.storage.load([], [task.id]))[1]
    assert found is not None
    return found


def signs(kit: TestOrchestrator) -> None:
    """Write the signs of life down, as the chore does."""
    kit.call(lambda: kit.director.workers.write_signs())


# -- 9: a closed socket changes nothing --------------------------------------------------------------


def test_silence_changes_nothing_while_the_lease_holds() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit, lease_s=30)
        puppet.join()
        job = kit.submit("script")
        kit.skip(29)
        assert kit.get(job).status is JobStatus.WAITING_FOR_WORKER
        assert EventType.TASK_LOST not in types(kit.events(job))
        # its result is welcome, although nobody heard of it for a while
        assert puppet.finish(puppet.tasks[0]) is ResultVerdict.ACCEPTED


def test_a_lapsed_lease_closes_the_attempts_as_lost_and_they_go_to_somebody_else() -> None:
    with TestOrchestrator(one_task()) as kit:
        dead, alive = Puppet(kit, id="dead", lease_s=30), Puppet(kit, id="alive", lease_s=100_000)
        dead.join()
        job = kit.submit("script")
        dead.settle()
        first = dead.tasks[0]
        alive.join()
        kit.skip(64)
        # then
        (lost,) = only(kit.events(job), EventType.TASK_LOST)
        assert (lost.attempt, lost.worker_id) == (1, "dead")
        (second,) = alive.tasks
        assert (second.id, second.attempt) == (first.id, 2)
        assert dead.finish(first, {"late": True}) is ResultVerdict.STALE_TASK
        assert alive.finish(second, {"late": False}) is ResultVerdict.ACCEPTED
        assert kit.get(job).data == {"late": False}


def test_a_worker_that_lapsed_is_told_to_register_again() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit, lease_s=30)
        puppet.join()
        kit.skip(100)
        assert puppet.beat().known is False
        puppet.join()
        assert puppet.beat().known is True


def test_an_old_session_cannot_speak_for_a_new_one() -> None:
    with TestOrchestrator(one_task()) as kit:
        old, new = Puppet(kit), Puppet(kit)
        old.join()
        new.join()
        assert old.beat().known is False
        old.leave()  # and cannot throw the new one out
        assert new.beat().known is True
        kit.submit("script")
        new.settle()
        assert (len(old.tasks), len(new.tasks)) == (0, 1)


def test_a_worker_that_says_goodbye_hands_its_tasks_back_at_once() -> None:
    with TestOrchestrator(one_task()) as kit:
        leaving, staying = Puppet(kit, id="leaving"), Puppet(kit, id="staying")
        leaving.join()
        job = kit.submit("script")
        leaving.settle()
        staying.join()
        leaving.leave()
        assert [task.attempt for task in staying.tasks] == [2]
        assert kit.get(job).status is JobStatus.WAITING_FOR_WORKER


def test_the_leases_of_the_idle_are_renewed_together_and_nobody_elses() -> None:
    with TestOrchestrator(one_task()) as kit:
        busy = Puppet(kit, id="busy", lease_s=30)
        busy.join()
        kit.submit("script")
        busy.settle()
        idle = [Puppet(kit, id=name, lease_s=30) for name in ("one", "two", "gone")]
        for puppet in idle:
            puppet.join()
        found = [kit.director.dispatcher.find(puppet.id) for puppet in (*idle, busy)]
        seats = [connected for connected in found if connected is not None]
        kit.skip(29)
        idle[2].leave()
        # when
        service = kit.director.workers
        service.lease_s = 30
        assert kit.call(lambda: service.renew(seats)) == [True, True, False, False]
        # then
        kit.skip(29)
        assert [puppet.beat().known for puppet in (*idle, busy)] == [True, True, False, False]


def test_whoever_has_a_task_by_the_stores_word_alone_is_not_idle() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        kit.submit("script")
        puppet.settle()
        connected = kit.director.dispatcher.find(puppet.id)
        assert connected is not None
        assert kit.call(lambda: kit.director.workers.renew([connected])) == [False]
        connected.attempts.clear()
        assert kit.call(lambda: kit.director.workers.renew([connected])) == [False]
        puppet.finish(puppet.tasks[0])
        assert kit.call(lambda: kit.director.workers.renew([connected])) == [True]


# -- 10: delivered is not started --------------------------------------------------------------------


def test_a_task_is_offered_until_there_is_evidence_that_it_started() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        assert stored(kit, task).state is AttemptState.OFFERED
        puppet.beat(task.attempt_id)  # listed in current_tasks: that is evidence
        signs(kit)
        assert stored(kit, task).state is AttemptState.STARTED
        assert [event.attempt for event in only(kit.events(job), EventType.TASK_STARTED)] == [1]


def test_progress_is_evidence_too_and_its_checkpoint_is_handed_to_the_next_attempt() -> None:
    with TestOrchestrator(one_task(retry=RetryPolicy(first_s=0, jitter=0))) as kit:
        puppet = Puppet(kit)
        puppet.join()
        kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        kit.director.workers.progress(task.attempt_id, 0.25, "a quarter", checkpoint={"frame": 7})
        kit.director.workers.progress(task.attempt_id, 0.5, "half")
        signs(kit)
        kept = stored(kit, task)
        assert (kept.state, kept.progress, kept.progress_message) == (AttemptState.STARTED, 0.5, "half")
        assert kept.checkpoint == {"frame": 7}
        puppet.fail(task, "TRANSIENT_ERROR")
        assert (puppet.tasks[1].attempt, puppet.tasks[1].checkpoint) == (2, {"frame": 7})


def test_an_attempt_has_begun_when_its_first_sign_came_and_not_its_last() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        first = kit.clock.now()
        kit.director.workers.progress(task.attempt_id, 0.1)
        kit.clock.jump(timedelta(seconds=0.2))
        kit.director.workers.progress(task.attempt_id, 0.2)
        signs(kit)
        assert [event.at for event in only(kit.events(job), EventType.TASK_STARTED)] == [first]


def test_missing_from_two_heartbeats_is_undelivered_and_spends_no_run() -> None:
    with TestOrchestrator(one_task(retry=RetryPolicy(max_attempts=1))) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        puppet.beat()
        puppet.beat()  # both may have been written before the offer came
        assert len(puppet.tasks) == 1
        kit.skip(2)
        puppet.beat()
        # then: queued again under a new attempt
        assert [task.attempt for task in puppet.tasks] == [1, 2]
        assert types(kit.events(job)).count("task_undelivered") == 1
        assert puppet.finish(puppet.tasks[0]) is ResultVerdict.STALE_TASK
        assert puppet.finish(puppet.tasks[1]) is ResultVerdict.ACCEPTED
        assert kit.get(job).status is JobStatus.FINISHED


def test_a_result_under_way_is_neither_missed_nor_lost_nor_offered_again() -> None:
    with TestOrchestrator(fan_out(3)) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        service, tasks = kit.director.workers, list(puppet.tasks)

        async def told_before(then: Callable[[], Awaitable[object]], task: Task) -> ResultVerdict:
            answer = service.report(puppet.result(task))
            await then()
            return await answer

        async def two_beats() -> None:
            for _ in range(2):
                await service.heartbeat(puppet.id, puppet.session, [task.attempt_id for task in tasks[1:]])

        assert kit.call(lambda: told_before(two_beats, tasks[0])) is ResultVerdict.ACCEPTED
        back = WorkerRecord(id=puppet.id, skills=("work",), capacity=10)
        running = [tasks[2].attempt_id]
        hands = CallbackConnection(puppet.tasks.extend, puppet.cancels.extend)
        sits = lambda: service.register(back, running, hands)  # noqa: E731
        assert kit.call(lambda: told_before(sits, tasks[1])) is ResultVerdict.ACCEPTED
        leaves = lambda: service.remove(puppet.id, None)  # noqa: E731
        assert kit.call(lambda: told_before(leaves, tasks[2])) is ResultVerdict.ACCEPTED
        # then
        assert kit.get(job).status is JobStatus.FINISHED
        assert len(puppet.tasks) == 3
        assert {"task_lost", "task_undelivered"}.isdisjoint(types(kit.events(job)))


def test_one_heartbeat_that_lists_the_attempt_makes_up_for_one_that_did_not() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        kit.submit("script")
        puppet.settle()
        attempt = puppet.tasks[0].attempt_id
        for running in ([], [attempt], [], []):
            puppet.beat(*running)
        assert len(puppet.tasks) == 1  # it has started: what is missing now is for the lease to say


def test_a_started_attempt_that_a_heartbeat_lacks_is_not_called_undelivered() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        puppet.beat(puppet.tasks[0].attempt_id)
        signs(kit)
        for _ in range(5):
            puppet.beat()
        assert "task_undelivered" not in types(kit.events(job))


# -- 11: reconnect -----------------------------------------------------------------------------------


def test_a_worker_that_reconnects_keeps_what_it_still_runs() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        assert puppet.join(task.attempt_id) == ()
        assert puppet.tasks == []
        assert puppet.finish(task) is ResultVerdict.ACCEPTED
        assert kit.get(job).status is JobStatus.FINISHED
        assert len(only(kit.events(job), EventType.TASK_LOST)) == 0


def test_what_was_offered_and_never_started_is_offered_again_under_the_same_id() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        puppet.join()
        assert [again.attempt_id for again in puppet.tasks] == [task.attempt_id]
        assert "task_lost" not in types(kit.events(job))
        assert puppet.finish(puppet.tasks[0]) is ResultVerdict.ACCEPTED


def test_what_had_started_and_is_not_reported_is_lost() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.director.workers.started(puppet.tasks[0].attempt_id)
        signs(kit)
        puppet.join()
        assert [task.attempt for task in puppet.tasks] == [2]
        assert types(kit.events(job)).count("task_lost") == 1


def test_what_a_reconnecting_worker_lost_is_offered_to_its_new_session_once() -> None:
    with TestOrchestrator(fan_out(4)) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        for task in puppet.tasks:
            kit.director.workers.started(task.attempt_id)
        signs(kit)
        puppet.join()
        assert sorted(task.attempt_id for task in puppet.tasks) == [f"{job.id}_1_{n}-2" for n in range(4)]
        assert {task.session for task in puppet.tasks} == {puppet.session}
        assert types(kit.events(job)).count("task_lost") == 4


def test_a_task_that_kills_its_worker_at_once_ends_though_every_process_has_the_same_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with TestOrchestrator(one_task(retry=RetryPolicy(lost_budget=2))) as kit:
        job = kit.submit("script")
        deliveries: list[str] = []
        for number in range(6):
            puppet = Puppet(kit, incarnation=f"process-{number}")
            puppet.join()
            kit.skip(5)
            deliveries += [task.attempt_id for task in puppet.tasks]
        # then every delivery was an attempt of its own, and the budget bounds them
        assert deliveries == [f"{job.id}_1_0-{number}" for number in (1, 2, 3)]
        assert kit.get(job).status is JobStatus.QUARANTINED
        assert types(kit.events(job)).count("task_undelivered") == 3
    restarts = [record for record in caplog.records if getattr(record, "action", "") == "worker_restarted"]
    assert [(record.levelname, vars(record)["worker_id"]) for record in restarts] == [
        ("WARNING", "puppet")
    ] * 3


def test_a_new_process_under_an_old_id_loses_what_its_predecessor_had_started() -> None:
    with TestOrchestrator(fan_out(3)) as kit:
        first = Puppet(kit, incarnation="first")
        first.join()
        job = kit.submit("script")
        first.settle()
        begun, offered, kept = first.tasks
        kit.director.workers.started(begun.attempt_id)
        # when the second process says that it runs one of them
        second = Puppet(kit, incarnation="second")
        assert second.join(kept.attempt_id) == ()
        # then
        events = kit.events(job)
        assert [event.task_id for event in only(events, EventType.TASK_LOST)] == [begun.id]
        assert [event.task_id for event in only(events, EventType.TASK_UNDELIVERED)] == [offered.id]
        assert sorted(task.attempt_id for task in second.tasks) == [f"{begun.id}-2", f"{offered.id}-2"]
        assert second.finish(kept) is ResultVerdict.ACCEPTED


def test_the_same_process_that_registers_again_gets_the_same_offers() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit, incarnation="one")
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        puppet.join()
        assert [again.attempt_id for again in puppet.tasks] == [task.attempt_id]
        assert "task_undelivered" not in types(kit.events(job))


def test_what_is_reported_and_not_stored_is_called_off() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        assert puppet.join("somebody-elses_1_0-1") == ("somebody-elses_1_0-1",)
        assert puppet.beat("somebody-elses_1_0-1").cancel == ("somebody-elses_1_0-1",)


def test_reconnecting_frees_the_slots_that_neither_side_knows_any_more() -> None:
    with TestOrchestrator(fan_out(6)) as kit:
        puppet = Puppet(kit, capacity=2)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        for _ in range(3):
            assert len(puppet.tasks) >= 2
            first, second = puppet.tasks[-2:]
            puppet.finish(first)
            puppet.join(second.attempt_id)
            puppet.finish(second)
        assert kit.get(job).status is JobStatus.FINISHED


# -- 12: after our own outage --------------------------------------------------------------------------


def test_after_a_restart_nothing_expires_for_one_full_lease() -> None:
    with TestOrchestrator(one_task(result_timeout=40)) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        kit.skip(39)
        kit.crash()
        kit.skip(20)  # 19 s after its deadline, the result was waiting at the worker
        assert kit.get(job).status is JobStatus.WAITING_FOR_WORKER
        assert puppet.join(task.attempt_id) == ()
        assert puppet.finish(task) is ResultVerdict.ACCEPTED
        assert kit.get(job).status is JobStatus.FINISHED


def test_after_a_restart_whoever_does_not_come_back_within_the_lease_is_gone() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet, other = Puppet(kit), Puppet(kit, id="other", lease_s=100_000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.crash()
        other.join()
        kit.skip(29)
        assert other.tasks == []
        kit.skip(40)
        assert [task.attempt for task in other.tasks] == [2]
        assert types(kit.events(job)).count("task_lost") == 1


def test_timers_ring_at_once_after_a_restart() -> None:
    blueprint = script(lambda context, actions: actions.sleep(10, then="done"), "done")
    with TestOrchestrator(blueprint) as kit:
        job = kit.submit("script")
        kit.skip(9)
        kit.crash()
        kit.skip(1)
        assert kit.get(job).status is JobStatus.FINISHED


# -- 14: the budget of the lost ------------------------------------------------------------------------


def test_lost_attempts_have_a_budget_apart_from_the_retry_policy() -> None:
    policy = RetryPolicy(max_attempts=1, lost_budget=3)
    with TestOrchestrator(one_task(retry=policy)) as kit:
        job = kit.submit("script")
        for number in range(1, 5):
            puppet = Puppet(kit, id=f"puppet-{number}")
            puppet.join()
            kit.skip(5)
            assert [task.attempt for task in puppet.tasks] == [number]
            puppet.leave()
        job = kit.get(job)
        assert (job.status, fault(job)) == (JobStatus.QUARANTINED, "lost")
        assert types(kit.events(job)).count("task_lost") == 4


def test_undelivered_attempts_spend_the_same_budget() -> None:
    with TestOrchestrator(one_task(retry=RetryPolicy(max_attempts=1, lost_budget=2))) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        for _ in range(3):
            puppet.beat()
            kit.skip(2)
            puppet.beat()
            kit.skip(2)
        job = kit.get(job)
        assert (job.status, fault(job)) == (JobStatus.QUARANTINED, "lost")
        assert types(kit.events(job)).count("task_undelivered") == 3


def test_the_budget_is_ten_by_default() -> None:
    with TestOrchestrator(one_task()) as kit:
        job = kit.submit("script")
        lost = 0
        while kit.get(job).status is not JobStatus.QUARANTINED:
            puppet = Puppet(kit, id=f"puppet-{lost}", lease_s=100_000)
            puppet.join()
            kit.skip(70)
            puppet.leave()
            lost += 1
        assert lost == 11


def test_a_task_that_ends_its_workers_takes_no_innocent_one_into_quarantine() -> None:
    policy = RetryPolicy(lost_budget=2)
    with TestOrchestrator(one_task(retry=policy)) as kit:
        jobs = [kit.submit("script") for _ in range(10)]
        guilty = jobs[3].id
        together: list[int] = []  # how many tasks the worker had beside the guilty one
        for number in range(20):
            puppet = Puppet(kit, id=f"puppet-{number}")
            puppet.join()
            for _ in range(30):
                kit.skip(2)
                tasks = puppet.tasks.copy()
                puppet.tasks.clear()
                if guilty in [task.job_id for task in tasks]:
                    together.append(len(tasks) - 1)
                    break
                for task in tasks:
                    puppet.finish(task)
            puppet.leave()
        # then
        assert together == [9, 9, 0]
        ended = {job.id: kit.get(job).status for job in jobs}
        assert ended.pop(guilty) is JobStatus.QUARANTINED
        assert set(ended.values()) == {JobStatus.FINISHED}


def test_a_task_that_was_lost_twice_runs_alone_on_its_worker() -> None:
    policy = RetryPolicy(lost_budget=5)
    with TestOrchestrator(one_task(retry=policy)) as kit:
        suspect = kit.submit("script")
        for number in range(2):
            puppet = Puppet(kit, id=f"dead-{number}")
            puppet.join()
            puppet.leave()
        busy = Puppet(kit, id="busy", lease_s=100_000)
        first = kit.submit("script")
        busy.join()
        assert [task.job_id for task in busy.tasks] == [first.id]
        # when its pause is over, it waits until the worker has nothing else
        kit.skip(2)
        second = kit.submit("script")
        busy.settle()
        assert len(busy.tasks) == 1
        waiting = kit.get(suspect)
        explanation = kit.call(lambda: kit.director.dispatcher.explain_job(waiting))
        codes = [reason.code for reason in explanation.reasons]
        assert "runs_alone" in codes
        busy.finish(busy.tasks.pop())
        assert [task.job_id for task in busy.tasks] == [suspect.id]
        # then nothing comes to the worker before it has finished it, not even after a reconnect
        busy.settle()
        assert len(busy.tasks) == 1
        (alone,) = busy.tasks
        busy.join(alone.attempt_id)
        assert busy.tasks == []
        busy.finish(alone)
        assert [task.job_id for task in busy.tasks] == [second.id]


def test_a_worker_that_was_kept_free_for_a_task_takes_others_when_that_was_cancelled() -> None:
    with TestOrchestrator(one_task()) as kit:
        suspect = kit.submit("script")
        for number in range(2):
            puppet = Puppet(kit, id=f"dead-{number}")
            puppet.join()
            puppet.leave()
        busy = Puppet(kit, id="busy", lease_s=100_000)
        kit.submit("script")
        busy.join()
        kit.skip(2)
        kit.submit("script")
        busy.settle()
        assert len(busy.tasks) == 1
        kit.cancel(suspect)
        kit.skip(4)
        assert len(busy.tasks) == 2


def test_silence_longer_than_the_heartbeat_timeout_is_a_lost_attempt() -> None:
    with TestOrchestrator(one_task(heartbeat_timeout=20)) as kit:
        puppet = Puppet(kit, lease_s=100_000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        for _ in range(4):
            kit.skip(15)
            kit.director.workers.progress(task.attempt_id, 0.5)
            signs(kit)
        assert "task_lost" not in types(kit.events(job))
        kit.skip(21)
        assert types(kit.events(job)).count("task_lost") == 1
        assert task.attempt_id in puppet.cancels


# -- slots -------------------------------------------------------------------------------------------


def test_a_worker_never_holds_more_than_its_capacity_and_takes_the_next_when_a_slot_is_free() -> None:
    running: list[int] = []
    most: list[int] = []

    async def work(params: dict[str, Any]) -> None:
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(10)
        running.pop()

    worker = Worker("small", concurrency=3)
    worker.task("work")(work)
    with TestOrchestrator(fan_out(10), workers=[worker]) as kit:
        began = kit.now
        assert kit.run("script").status is JobStatus.FINISHED
        assert max(most) == 3
        assert (kit.now - began).total_seconds() < 41


def test_a_worker_serves_only_its_queues() -> None:
    night = Worker("night", queues=["q-night"])
    night.task("work")(lambda params: {"by": "night"})
    with TestOrchestrator(one_task(), one_task(name="late", queue="q-night"), workers=[night]) as kit:
        assert kit.run("late").data == {"by": "night"}
        job = kit.submit("script")
        kit.skip(10)
        assert kit.get(job).status is JobStatus.WAITING_FOR_WORKER


def test_a_higher_priority_goes_first_and_age_makes_up_for_it() -> None:
    with TestOrchestrator(one_task()) as kit:
        old = kit.submit("script")
        kit.skip(61)
        young = kit.submit("script")
        urgent = kit.submit("script", priority=1.5)
        puppet = Puppet(kit)
        puppet.join()
        assert [task.job_id for task in puppet.tasks] == [urgent.id, old.id, young.id]


def test_a_checkpoint_that_was_not_written_yet_reaches_the_next_attempt_after_a_failure_or_a_loss() -> None:
    with TestOrchestrator(one_task(retry=RetryPolicy(first_s=0.0))) as kit:
        service = kit.director.workers
        puppet = Puppet(kit)
        puppet.join()
        kit.submit("script")
        puppet.settle()
        first = puppet.tasks[-1]
        service.progress(first.attempt_id, 0.5, checkpoint="halfway")
        puppet.fail(first, "TRANSIENT_ERROR")
        kit.skip(1)
        second = puppet.tasks[-1]
        assert (second.attempt, second.checkpoint) == (2, "halfway")
        service.progress(second.attempt_id, 0.9, checkpoint="nearly")
        kit.call(lambda: service.hand_back(puppet.id, [second.attempt_id]))
        kit.skip(1)
        third = puppet.tasks[-1]
    assert (third.attempt, third.checkpoint) == (3, "nearly")
