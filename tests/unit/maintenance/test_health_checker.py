"""The HealthChecker and the ProgressWriter. FENCES 9, 12."""

import asyncio
from collections.abc import Collection

from regista import JobStatus
from regista.dispatch.connected import CallbackConnection
from regista.maintenance.chore import ChoreResult
from regista.maintenance.health_checker import HealthChecker, ProgressWriter, WorkerIndexCleaner
from regista.model import AttemptState, Worker
from regista.storage.base import HintKind
from regista.storage.memory import MemoryStorage
from regista.testing.orchestrator import TestOrchestrator
from tests.stopwatch import Stopwatch
from tests.support import Puppet, fan_out, one_task, types


def checker(kit: TestOrchestrator) -> HealthChecker:
    director = kit.director
    return HealthChecker(director.storage, director.workers, director.grace)


def run_once(kit: TestOrchestrator) -> ChoreResult:
    chore = checker(kit)
    return kit.call(lambda: chore.run_once(kit.now))


def test_whoever_beats_in_time_is_left_alone() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit, lease_s=30)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        for _ in range(10):
            kit.skip(20)
            puppet.beat(puppet.tasks[0].attempt_id)
            assert run_once(kit).done == 0
        assert "task_lost" not in types(kit.events(job))


def test_a_lapsed_worker_is_buried_with_everything_it_held() -> None:
    with TestOrchestrator(fan_out(3)) as kit:
        puppet = Puppet(kit, lease_s=30)
        puppet.join()
        job = kit.submit("script")
        kit.skip(64)  # the kit's own chore has run by now
        assert types(kit.events(job)).count("task_lost") == 3
        assert kit.call(kit.director.storage.workers) == []
        assert kit.director.dispatcher.find("puppet") is None


def test_nothing_is_lost_within_the_grace() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit, lease_s=5)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.director.grace.restart()
        kit.skip(20)
        assert run_once(kit).done == 0
        assert "task_lost" not in types(kit.events(job))
        kit.skip(11)
        assert run_once(kit).done <= 1
        assert types(kit.events(job)).count("task_lost") == 1


def test_after_a_restart_the_tasks_of_workers_that_nobody_knows_are_lost_after_the_grace() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.crash()
        assert run_once(kit).done == 0
        kit.skip(64)
        assert types(kit.events(job)).count("task_lost") == 1
        assert kit.get(job).status is JobStatus.WAITING_FOR_WORKER


def test_two_checkers_at_once_lose_every_attempt_once() -> None:
    with TestOrchestrator(fan_out(4)) as kit:
        puppet = Puppet(kit, lease_s=5)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        first, second = checker(kit), checker(kit)

        async def race() -> tuple[ChoreResult, ChoreResult]:
            await asyncio.sleep(5.0001)
            return await asyncio.gather(first.run_once(kit.clock.now()), second.run_once(kit.clock.now()))

        kit.call(race)
        assert types(kit.events(job)).count("task_lost") == 4
        attempts = {(e.task_id, e.attempt) for e in kit.events(job) if e.type == "task_retried"}
        assert len(attempts) == 4


def test_the_sign_writer_stores_that_a_task_has_started_once() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        kit.director.workers.started(task.attempt_id)
        first, second = ProgressWriter(kit.director.workers), ProgressWriter(kit.director.workers)

        async def race() -> tuple[ChoreResult, ChoreResult]:
            return await asyncio.gather(first.run_once(kit.clock.now()), second.run_once(kit.clock.now()))

        kit.call(race)
        assert types(kit.events(job)).count("task_started") == 1
        (stored,) = kit.call(lambda: kit.director.storage.load([], [task.id]))[1]
        assert stored is not None
        assert stored.state is AttemptState.STARTED


def test_a_sign_that_a_result_has_overtaken_is_not_written() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        kit.director.workers.progress(task.attempt_id, 0.5)
        puppet.finish(task)
        kit.director.workers.progress(task.attempt_id, 0.9)  # it comes late
        kit.skip(5)
        assert kit.get(job).status is JobStatus.FINISHED
        assert types(kit.events(job)).count("task_started") == 1


def test_after_an_outage_of_ours_a_worker_has_its_own_lease_to_come_back() -> None:
    with TestOrchestrator(one_task()) as kit:
        patient = Worker(id="patient", skills=("work",), lease_s=45.0)
        service = kit.director.workers
        kit.call(
            lambda: service.register(
                patient, [], CallbackConnection(lambda tasks: None, lambda attempts: None)
            )
        )
        job = kit.submit("script")
        kit.skip(44)
        kit.director.grace.restart()  # we were stalled; its heartbeats have piled up
        kit.skip(44)
        assert "task_lost" not in types(kit.events(job))
        kit.skip(3)
        assert types(kit.events(job)).count("task_lost") == 1


class Busy(MemoryStorage):
    """Everybody who is known has a task in their hands, and it counts how often it is asked who is known."""

    asked = 0

    async def workers(self, ids: Collection[str] | None = None, *, lapsed_only: bool = False) -> list[Worker]:
        self.asked += ids is None and not lapsed_only
        return await super().workers(ids, lapsed_only=lapsed_only)

    async def holders(self) -> list[str]:
        return [worker.id for worker in await super().workers()]


def test_thousands_of_busy_workers_are_looked_up_once_and_not_once_for_each() -> None:
    with TestOrchestrator(one_task()) as kit:
        storage = Busy()
        kit.skip(64)
        chore = HealthChecker(storage, kit.director.workers, kit.director.grace)

        async def look() -> tuple[ChoreResult, float]:
            for number in range(4000):
                await storage.register(Worker(id=f"w{number}", skills=("work",)), 1e6)
            watch = Stopwatch()
            return await chore.run_once(kit.now), watch.elapsed_s()

        report, took_s = kit.call(look)
        assert report.done == 0
        assert storage.asked == 1
        assert took_s < 0.1


def test_whoever_comes_back_while_another_is_buried_keeps_its_task() -> None:
    with TestOrchestrator(fan_out(2)) as kit:
        puppets = [Puppet(kit, id=name, capacity=1) for name in ("a", "b")]
        for puppet in puppets:
            puppet.join()
        job = kit.submit("script")
        puppets[0].settle()
        storage, chore = kit.director.storage, checker(kit)

        async def race() -> ChoreResult:
            for puppet in puppets:
                await storage.forget_worker(puppet.id, puppet.session)
            last = (await storage.holders())[-1]
            back = storage.register(Worker(id=last, skills=("work",)), 1e6)
            report, _ = await asyncio.gather(chore.run_once(kit.clock.now()), back)
            return report

        assert kit.call(race).done == 1
        assert types(kit.events(job)).count("task_lost") == 1


def test_a_seat_that_the_store_knows_nothing_of_is_taken_away() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        director = kit.director
        director.hints.handlers[HintKind.WORKER] = ()
        cleaner = WorkerIndexCleaner(director.storage, director.dispatcher, director.workers)
        assert kit.call(lambda: cleaner.run_once(kit.now)).done == 0
        # Another instance buries it, and the word of that is lost.
        assert kit.call(lambda: director.storage.forget_worker("puppet", puppet.session))

        assert kit.call(lambda: cleaner.run_once(kit.now)).done == 1
        assert director.dispatcher.find("puppet") is None
        job = kit.submit("script")
        assert kit.get(job).status == "waiting_for_worker"
        assert puppet.tasks == []


def test_a_seat_of_an_old_session_is_taken_away_and_a_new_one_stays() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet, other = Puppet(kit), Puppet(kit, id="other")
        puppet.join()
        other.join()
        director = kit.director
        # It registers elsewhere, and we do not hear of it.
        moved = Worker(id="puppet", skills=("work",), instance="elsewhere")
        director.hints.handlers[HintKind.WORKER] = ()
        kit.call(lambda: director.storage.register(moved, 30.0))
        cleaner = WorkerIndexCleaner(director.storage, director.dispatcher, director.workers)

        assert kit.call(lambda: cleaner.run_once(kit.now)).done == 1
        assert director.dispatcher.find("puppet") is None
        assert director.dispatcher.find("other") is not None
