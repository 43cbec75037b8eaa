import asyncio
from typing import Any

import msgspec
from msgspec.structs import replace

from regista.dispatch.connected import CallbackConnection
from regista.dispatch.dispatcher import Dispatcher
from regista.dispatch.explain import ClassFacts, explain
from regista.model import AttemptState, Gpu, Profile, QueueStatus, Task, Worker
from regista.model.explanation import Explanation, Score
from regista.storage.memory import MemoryStorage
from regista.testing.clock import Clock
from regista.testing.conformance.storage.kit import START, at, dispatch, make_task, make_worker


def facts(*skills: str, workers: int = 1, **fields: Any) -> ClassFacts:
    known = {"draining", "drained", "cut", "no_poll", "full", "free", "elsewhere"}
    counts = {name: value for name, value in fields.items() if name in known}
    worker = {name: value for name, value in fields.items() if name not in known}
    return ClassFacts(worker=make_worker(skills=skills, **worker), workers=workers, **counts)


def told(task: Task, *classes: ClassFacts, **more: Any) -> dict[str, int]:
    """Code → how many workers it keeps away."""
    found = explain(task, more.pop("lanes", []), classes, **more)
    assert all(reason.detail for reason in found.reasons)
    assert all(reason.unblock for reason in found.reasons)
    return {reason.code: reason.workers for reason in found.reasons}


def test_nobody_is_there() -> None:
    found = explain(make_task(), [], [])
    assert "no worker is connected" in found.summary
    assert [reason.code for reason in found.reasons] == ["no_worker_with_skill"]
    assert "start a worker that has the skill 'encode'" in found.sentences()[1]


def test_nobody_has_the_skill() -> None:
    assert told(make_task(), facts("sing", workers=3), facts("dance")) == {"no_worker_with_skill": 4}


def test_every_condition_is_told_with_the_number_of_workers_it_keeps_away() -> None:
    task = make_task(queue="night", requirements={"gpu": 1}, max_cost=1.0)
    classes = [
        facts("encode", workers=3, profile=Profile(cost_per_second=2.0)),
        facts("encode", workers=2, queues=("day",)),
        facts("sing", workers=4),
    ]
    assert told(task, *classes) == {
        "requirement_gpu": 9,
        "max_cost": 3,
        "queue_not_served": 2,
        "skill_missing": 4,
    }


def test_the_nearest_miss_is_told_first() -> None:
    task = make_task(queue="night", requirements={"gpu": 1})
    classes = [
        facts("sing", workers=4),
        facts("encode", workers=2),
        facts("encode", workers=3, queues=("day",), profile=Profile(gpus=(Gpu(),))),
        facts("encode", full=1, profile=Profile(gpus=(Gpu(),))),
    ]
    assert list(told(task, *classes)) == ["all_busy", "requirement_gpu", "queue_not_served", "skill_missing"]
    far = facts("sing", queues=("day",), profile=Profile(gpus=(Gpu(),)))
    assert list(told(task, far)) == ["no_worker_with_skill", "queue_not_served"]


def test_those_who_could_are_busy() -> None:
    lanes = [
        QueueStatus(make_task().queue_key, "ann", 9, START),
        QueueStatus(make_task().queue_key, "bob", 1, START),
    ]
    task = make_task(client="ann")
    assert told(task, facts("encode", workers=2, full=2), lanes=lanes) == {"all_busy": 2}
    (reason,) = explain(task, lanes, [facts("encode", workers=2, full=2)]).reasons
    assert "9 in line, taking turns with 1 other clients" in reason.detail


def test_those_who_could_drain_or_do_not_poll_or_sit_elsewhere() -> None:
    classes = [facts("encode", workers=5, draining=2, no_poll=3), facts("encode", elsewhere=True)]
    assert told(make_task(), *classes) == {"elsewhere": 1, "no_open_poll": 3, "draining": 2}


def test_a_drained_worker_is_named_with_the_way_to_take_it_back() -> None:
    (reason,) = explain(make_task(), [], [facts("encode", draining=1, drained="w7")]).reasons
    assert 'POST /api/v1/workers/w7/drain with {"on": false}' in reason.unblock


def test_a_worker_whose_stream_is_closed_is_not_waited_for() -> None:
    (reason,) = explain(make_task(), [], [facts("encode", cut=1)]).reasons
    assert (reason.code, reason.workers) == ("disconnected", 1)
    assert "wait" not in reason.unblock


def test_a_slot_is_free_a_moment_before_it_starts() -> None:
    assert told(make_task(), facts("encode", free=2)) == {"about_to_start": 0}


def test_a_retry_waits_for_its_pause() -> None:
    task = make_task(not_before=at(60), failed_runs=2, attempt=3)
    found = explain(task, [], [facts("encode", free=2)])
    assert [reason.code for reason in found.reasons] == ["paused_until"]
    assert "12:01:00" in found.summary


def test_what_a_worker_has_in_its_hands_waits_for_nobody() -> None:
    offered = make_task(state=AttemptState.OFFERED, worker_id="w7", offered_at=at(1))
    assert "was offered to worker 'w7'" in explain(offered, [], []).summary
    started = replace(offered, state=AttemptState.STARTED, started_at=at(2))
    found = explain(started, [], [])
    assert ("runs on worker 'w7'" in found.summary, found.since, found.reasons) == (True, at(2), ())
    assert "is over" in explain(make_task(state=AttemptState.CLOSED), [], []).summary


def test_many_different_details_are_counted_instead_of_listed() -> None:
    classes = [facts("encode", profile=Profile(ram_gb=float(n))) for n in range(10)]
    (reason,) = explain(make_task(requirements={"ram_gb": 64}), [], classes).reasons
    assert reason.workers == 10
    assert reason.detail.endswith("and 7 more")


def test_an_explanation_travels_as_json() -> None:
    found = explain(make_task(), [], [facts("encode", full=1)])
    again = msgspec.json.decode(msgspec.json.encode(found), type=Explanation)
    assert again == found


# Asked of the dispatcher


def ask(*workers: Worker, task: Task | None = None, hold: int = 0) -> tuple[Explanation, list[Score]]:
    async def run() -> tuple[Explanation, list[Score]]:
        clock = Clock(START)
        storage = MemoryStorage(clock)
        await storage.start()
        dispatcher = Dispatcher(storage, clock)
        try:
            for worker in workers:
                known = await storage.register(worker, 30)
                if worker.instance != "elsewhere":
                    dispatcher.connect(known, CallbackConnection(lambda tasks: None, lambda attempts: None))
            await asyncio.sleep(0.001)
            for number in range(hold):
                assert dispatcher.reserve(make_task(f"h{number}"), START) is not None
            waits = task or make_task()
            await dispatch(storage, make_task("before", queued_at=at(-5)))
            await dispatch(storage, waits)
            scores = await dispatcher.dry_run(waits)
            return await dispatcher.explain(waits), scores
        finally:
            await dispatcher.stop()
            await storage.stop()

    return asyncio.run(run())


def test_the_dispatcher_gathers_the_facts_itself() -> None:
    found, _ = ask(make_worker("w1", capacity=2), make_worker("w2", skills=["sing"]), hold=2)
    assert {reason.code: reason.workers for reason in found.reasons} == {"skill_missing": 1, "all_busy": 1}
    assert "2 in line" in found.reasons[0].detail


def test_a_stream_that_was_cut_is_known_to_the_dispatcher() -> None:
    async def run() -> tuple[Explanation, Explanation]:
        clock = Clock(START)
        storage = MemoryStorage(clock)
        await storage.start()
        dispatcher = Dispatcher(storage, clock)
        try:
            for name in ("w1", "w2"):
                known = await storage.register(make_worker(name, lease_s=30.0), 30)
                dispatcher.connect(known, CallbackConnection(lambda tasks: None, lambda attempts: None))
                dispatcher.cut(name, known.session)
            dispatcher.cut("w2", 99)  # an older connection of it says nothing about this one
            dispatcher.drain("w2")
            held = make_task(state=AttemptState.STARTED, worker_id="w1", session=1, started_at=START)
            job = await dispatch(storage, held)
            gone = await dispatcher.explain_job(job)
            return await dispatcher.explain(make_task("other")), gone
        finally:
            await dispatcher.stop()
            await storage.stop()

    waits, held = asyncio.run(run())
    assert [(reason.code, reason.workers) for reason in waits.reasons] == [("disconnected", 2)]
    (reason,) = held.reasons
    assert (reason.code, "is not connected since" in reason.detail) == ("worker_disconnected", True)
    assert "its lease ends at 2026-03-01T12:00:30" in reason.unblock


def test_workers_of_other_instances_are_counted_too() -> None:
    found, _ = ask(make_worker("w1", instance="elsewhere"))
    assert [(reason.code, reason.workers) for reason in found.reasons] == [("elsewhere", 1)]


def test_a_dry_run_scores_everybody_and_assigns_nothing() -> None:
    _, scores = ask(
        make_worker("dear", profile=Profile(cost_per_second=3)),
        make_worker("cheap", profile=Profile(cost_per_second=1)),
        make_worker("warm", profile=Profile(cost_per_second=5, hot=("encode",))),
        make_worker("unfit", skills=["sing"]),
        make_worker("full", capacity=0),
    )
    assert [score.worker_id for score in scores] == ["warm", "cheap", "dear", "full", "unfit"]
    assert [score.fits for score in scores] == [True, True, True, True, False]
    assert "warm first" in scores[0].why
    assert scores[3].why == "no free slot"
    assert "has no skill 'encode'" in scores[4].why
    assert all(score.free == 10 for score in scores[:3])
    assert msgspec.json.decode(msgspec.json.encode(scores), type=list[Score]) == scores
