import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from regista.dispatch.connected import CallbackConnection
from regista.dispatch.dispatcher import Dispatcher
from regista.errors import StorageError
from regista.model import Profile, QueueKey, Task, Worker, parse_queue_key
from regista.storage.base import Hint, HintKind, TaskClaim
from regista.storage.memory import MemoryStorage
from regista.testing.clock import Clock
from regista.testing.conformance.storage.kit import START, at, dispatch, make_task, make_worker


class Hall:
    """A dispatcher over a real store; every worker writes down what it is sent."""

    def __init__(self, storage: MemoryStorage, clock: Clock) -> None:
        self.storage = storage
        self.dispatcher = Dispatcher(storage, clock)
        self.sent: dict[str, list[str]] = {}
        self.now = clock.now()
        self.unsubscribe = storage.subscribe(self._hear)

    def _hear(self, hint: Hint) -> None:
        if hint.kind is HintKind.TASK:
            self.dispatcher.task_queued(parse_queue_key(hint.id))

    def sit(self, id: str = "w1", holding: Any = (), **fields: Any) -> Worker:
        worker = make_worker(id, **{"capacity": 2, "session": 1, **fields})

        def send(tasks: Sequence[Task]) -> None:
            self.sent.setdefault(id, []).extend(task.job_id for task in tasks)

        self.dispatcher.connect(worker, CallbackConnection(send, lambda attempts: None), holding)
        return worker

    async def wait(self, *tasks: Task) -> None:
        """These are left in their lanes."""
        for task in tasks:
            await dispatch(self.storage, task)

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def reserve(self, job_id: str = "fresh", **fields: Any) -> str | None:
        """The worker that a fresh task goes to."""
        offered = self.dispatcher.reserve(make_task(job_id, **fields), self.now)
        return None if offered is None else offered.worker_id


def play(body: Callable[[Hall], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = Clock(START)
        storage = MemoryStorage(clock)
        await storage.start()
        hall = Hall(storage, clock)
        try:
            await body(hall)
        finally:
            await hall.dispatcher.stop()
            await storage.stop()

    asyncio.run(run())


def test_a_fresh_task_is_offered_at_once_to_a_free_worker() -> None:
    async def body(hall: Hall) -> None:
        hall.sit()
        await hall.settle()
        offered = hall.dispatcher.reserve(make_task(), at(5))
        assert offered is not None
        assert (offered.worker_id, offered.session, offered.offered_at) == ("w1", 1, at(5))
        hall.dispatcher.deliver([offered])
        assert hall.sent == {"w1": ["job-1"]}

    play(body)


def test_before_the_lanes_were_looked_at_nothing_is_offered_past_them() -> None:
    async def body(hall: Hall) -> None:
        await hall.wait(make_task("old"))
        hall.dispatcher = Dispatcher(hall.storage, Clock(START))  # a restart: no hint tells of the old one
        hall.sit(capacity=1)
        assert hall.reserve() is None
        await hall.settle()
        assert hall.sent == {"w1": ["old"]}

    play(body)


def test_a_worker_that_frees_a_slot_takes_the_best_that_waits() -> None:
    async def body(hall: Hall) -> None:
        hall.sit(capacity=1)
        await hall.settle()
        assert hall.reserve("first") == "w1"
        await hall.wait(make_task("late", queued_at=at(9)), make_task("early", queued_at=at(1)))
        await hall.settle()
        assert hall.sent == {}
        hall.dispatcher.release("w1", "first_1_0-1")
        assert hall.reserve() is None  # the slot belongs to those who wait
        await hall.settle()
        assert hall.sent == {"w1": ["early"]}

    play(body)


def test_a_fresh_task_never_overtakes_one_that_is_on_its_way_to_the_store() -> None:
    async def body(hall: Hall) -> None:
        hall.sit(capacity=1)
        await hall.settle()
        assert hall.reserve("first") == "w1"
        assert hall.reserve("second") is None  # not written yet
        hall.dispatcher.release("w1", "first_1_0-1")
        assert hall.reserve("third") is None
        await hall.wait(make_task("second"), make_task("third"))
        await hall.settle()
        assert hall.sent == {"w1": ["second"]}

    play(body)


def test_a_fresh_task_of_another_lane_does_not_take_the_slot_of_one_that_waits() -> None:
    async def body(hall: Hall) -> None:
        hall.sit(capacity=1, skills=["encode", "probe"])
        await hall.settle()
        assert hall.reserve("first") == "w1"
        await hall.wait(make_task("waits"))
        hall.dispatcher.release("w1", "first_1_0-1")
        assert hall.reserve("fresh", type="probe") is None
        await hall.settle()
        assert hall.sent == {"w1": ["waits"]}

    play(body)


def test_when_the_lane_is_empty_again_fresh_tasks_are_offered_at_once_again() -> None:
    async def body(hall: Hall) -> None:
        hall.sit(capacity=3)
        await hall.settle()
        await hall.wait(make_task("waits"))
        await hall.settle()
        assert hall.reserve() == "w1"

    play(body)


def test_a_task_that_was_never_written_does_not_block_its_lane_for_ever() -> None:
    async def body(hall: Hall) -> None:
        hall.sit(capacity=1)
        await hall.settle()
        assert hall.reserve("first") == "w1"
        assert hall.reserve("refused") is None
        hall.dispatcher.release("w1", "first_1_0-1")
        await hall.settle()
        assert hall.reserve() == "w1"

    play(body)


def test_a_task_whose_hint_was_lost_is_found_at_the_next_wake() -> None:
    async def body(hall: Hall) -> None:
        hall.sit()
        await hall.settle()
        hall.unsubscribe()
        await hall.wait(make_task("unheard"))
        await hall.settle()
        assert hall.sent == {}
        hall.dispatcher.wake()
        await hall.settle()
        assert hall.sent == {"w1": ["unheard"]}

    play(body)


def test_only_workers_that_meet_the_requirements_get_a_task() -> None:
    async def body(hall: Hall) -> None:
        hall.sit("small", profile=Profile(ram_gb=4))
        await hall.settle()
        await hall.wait(make_task("big", requirements={"ram_gb": 64}), make_task("plain"))
        await hall.settle()
        assert hall.sent == {"small": ["plain"]}
        assert hall.reserve(requirements={"ram_gb": 64}) is None
        hall.sit("large", profile=Profile(ram_gb=64), capacity=1)
        await hall.settle()
        assert hall.sent == {"small": ["plain"], "large": ["big"]}

    play(body)


def test_a_task_that_nobody_may_do_does_not_hold_up_the_others() -> None:
    async def body(hall: Hall) -> None:
        hall.sit()
        await hall.settle()
        await hall.wait(make_task("stuck", max_cost=0.5, requirements={"zone": "mars"}))
        await hall.settle()
        assert hall.reserve() == "w1"

    play(body)


def test_clients_take_turns_for_free_slots() -> None:
    async def body(hall: Hall) -> None:
        for n in range(3):
            await hall.wait(make_task(f"ann-{n}", client="ann"))
        await hall.wait(make_task("bob-0", client="bob", queued_at=at(50)))
        hall.sit(capacity=2)
        await hall.settle()
        assert hall.sent == {"w1": ["ann-0", "bob-0"]}

    play(body)


def test_many_free_seats_share_what_waits() -> None:
    async def body(hall: Hall) -> None:
        for n in range(100):
            hall.sit(f"w{n}", capacity=1)
        await hall.settle()
        for n in range(60):
            await hall.wait(make_task(f"job-{n}"))
        await hall.settle()
        assert sorted(job for jobs in hall.sent.values() for job in jobs) == sorted(
            f"job-{n}" for n in range(60)
        )
        assert all(len(jobs) == 1 for jobs in hall.sent.values())

    play(body)


# Credit, limits, draining, changes


def test_a_worker_that_polls_gets_a_task_only_while_a_poll_is_open() -> None:
    async def body(hall: Hall) -> None:
        hall.sit(transport="poll")
        await hall.settle()
        assert hall.reserve("first") is None
        await hall.wait(make_task("first"))
        await hall.settle()
        assert hall.sent == {}
        assert hall.dispatcher.grant("w1", 1, 1) is True
        await hall.settle()
        assert hall.sent == {"w1": ["first"]}
        await hall.wait(make_task("second"))
        await hall.settle()
        assert hall.sent == {"w1": ["first"]}
        assert hall.dispatcher.grant("w1", 2, 1) is False
        assert hall.dispatcher.grant("nobody", 1, 1) is False

    play(body)


def test_credit_comes_back_when_a_reservation_is_not_delivered() -> None:
    async def body(hall: Hall) -> None:
        hall.sit()
        hall.dispatcher.grant("w1", 1, 1)
        await hall.settle()
        assert hall.reserve("refused") == "w1"
        assert hall.reserve("other", type="probe") is None
        hall.dispatcher.release("w1", "refused_1_0-1")
        await hall.settle()
        assert hall.reserve("again") == "w1"
        hall.dispatcher.deliver([replace(make_task("again"), worker_id="w1", session=1)])
        hall.dispatcher.release("w1", "again_1_0-1")
        await hall.settle()
        assert hall.reserve("third") is None
        assert hall.dispatcher.grant("w1", 1, 1) is True
        await hall.settle()
        assert hall.reserve("fourth") == "w1"

    play(body)


def test_a_limit_of_one_skill_is_kept_by_push_and_by_pull() -> None:
    async def body(hall: Hall) -> None:
        hall.sit(capacity=5, skills=["encode", "probe"], limits={"encode": 2})
        await hall.settle()
        assert hall.reserve("pushed") == "w1"
        await hall.wait(*(make_task(f"e{n}", queued_at=at(n)) for n in range(3)))
        await hall.wait(*(make_task(f"p{n}", type="probe", queued_at=at(n)) for n in range(5)))
        await hall.settle()
        assert sorted(hall.sent["w1"]) == ["e0", "p0", "p1", "p2"]
        hall.dispatcher.release("w1", "e0_1_0-1")
        await hall.settle()
        assert sorted(hall.sent["w1"]) == ["e0", "e1", "p0", "p1", "p2"]

    play(body)


def test_a_skill_at_its_limit_does_not_keep_the_slots_of_the_others() -> None:
    async def body(hall: Hall) -> None:
        hall.sit(capacity=5, skills=["encode", "probe"], limits={"encode": 1})
        await hall.settle()
        assert hall.reserve("first") == "w1"
        await hall.wait(make_task("waits"))
        await hall.settle()
        assert hall.sent == {}
        assert hall.reserve("fresh", type="probe") == "w1"
        assert hall.reserve("second") is None

    play(body)


def test_limits_count_what_a_worker_brought_along() -> None:
    async def body(hall: Hall) -> None:
        hall.sit(limits={"encode": 1}, holding={"old_1_0-1": "encode"})
        await hall.settle()
        assert hall.reserve() is None

    play(body)


def test_a_draining_worker_gets_nothing_until_it_is_called_back() -> None:
    async def body(hall: Hall) -> None:
        hall.sit()
        await hall.settle()
        assert hall.dispatcher.drain("w1") is True
        assert hall.reserve("first") is None
        await hall.wait(make_task("first"))
        await hall.settle()
        assert hall.sent == {}
        hall.dispatcher.drain("w1", False)
        await hall.settle()
        assert hall.sent == {"w1": ["first"]}
        assert hall.dispatcher.drain("nobody") is False

    play(body)


def test_a_worker_that_warms_up_keeps_what_it_holds_and_comes_first() -> None:
    async def body(hall: Hall) -> None:
        hall.sit("cheap", profile=Profile(cost_per_second=1))
        dear = hall.sit("dear", profile=Profile(cost_per_second=2))
        await hall.settle()
        assert hall.reserve("a") == "cheap"
        warm = replace(dear, profile=replace(dear.profile, hot=("encode",)))
        assert hall.dispatcher.update(warm) is True
        assert hall.reserve("b") == "dear"
        connected = hall.dispatcher.find("dear")
        assert connected is not None
        assert list(connected.attempts) == ["b_1_0-1"]
        assert hall.dispatcher.update(replace(warm, session=9)) is False

    play(body)


def test_a_worker_that_learns_a_skill_takes_what_waited_for_it() -> None:
    async def body(hall: Hall) -> None:
        worker = hall.sit()
        await hall.settle()
        await hall.wait(make_task("sings", type="sing"))
        await hall.settle()
        assert hall.sent == {}
        hall.dispatcher.update(replace(worker, skills=("encode", "sing")))
        await hall.settle()
        assert hall.sent == {"w1": ["sings"]}

    play(body)


def test_strategies_decide_where_a_fresh_task_goes() -> None:
    async def body(hall: Hall) -> None:
        hall.sit("poor", capacity=5, profile=Profile(cost_per_second=1, reputation=0.1))
        hall.sit("good", capacity=5, profile=Profile(cost_per_second=2, reputation=1))
        await hall.settle()
        assert hall.reserve("a", strategy="cheapest") == "poor"
        assert hall.reserve("b", strategy="best_value") == "good"
        assert hall.reserve("c", strategy="least_connections") in ("poor", "good")
        assert hall.reserve("d", max_cost=1.5) == "poor"

    play(body)


# When things go wrong


def test_what_is_offered_to_a_worker_that_left_is_sent_to_nobody() -> None:
    async def body(hall: Hall) -> None:
        hall.sit()
        await hall.settle()
        offered = hall.dispatcher.reserve(make_task(), hall.now)
        assert offered is not None
        hall.dispatcher.disconnect("w1", 1)
        hall.sit(session=2)
        hall.dispatcher.deliver([offered])
        hall.dispatcher.release("w1", offered.attempt_id)
        assert hall.sent == {}
        connected = hall.dispatcher.find("w1")
        assert connected is not None
        assert connected.free == 2

    play(body)


def test_a_pull_that_fails_is_tried_again() -> None:
    async def body(hall: Hall) -> None:
        real = hall.storage.claim_tasks
        failures = 0

        async def fails_once(*arguments: Any) -> TaskClaim:
            nonlocal failures
            failures += 1
            if failures == 1:
                raise StorageError("a hiccup")
            return await real(*arguments)

        hall.storage.claim_tasks = fails_once  # type: ignore[method-assign, assignment]
        hall.sit()
        await hall.settle()
        await hall.wait(make_task("first"))
        await hall.settle()
        assert (hall.sent, failures) == ({}, 1)
        hall.dispatcher.wake()
        await hall.settle()
        assert hall.sent == {"w1": ["first"]}

    play(body)


def test_the_store_is_asked_only_for_slots_that_can_be_used() -> None:
    async def body(hall: Hall) -> None:
        real = hall.storage.claim_tasks
        asked: list[str] = []

        async def noted(worker: Worker, *arguments: Any) -> TaskClaim:
            asked.append(worker.id)
            return await real(worker, *arguments)

        hall.storage.claim_tasks = noted  # type: ignore[method-assign, assignment]
        hall.sit(transport="poll", capacity=1)
        await hall.settle()
        for name in ("first", "second", "third"):
            assert hall.reserve(name) is None
            await hall.wait(make_task(name))
        await hall.settle()
        assert asked == []
        for done, name in enumerate(("first", "second", "third"), 1):
            assert hall.dispatcher.grant("w1", 1, 1)
            await hall.settle()
            assert (hall.sent["w1"][-1], len(asked)) == (name, done)
            hall.dispatcher.release("w1", make_task(name).attempt_id)
            await hall.settle()
            assert len(asked) == done

    play(body)


def test_what_comes_while_the_store_is_asked_for_another_lane_is_not_forgotten() -> None:
    async def body(hall: Hall) -> None:
        real, gate = hall.storage.claim_tasks, asyncio.Event()

        async def slow(*arguments: Any) -> TaskClaim:
            found = await real(*arguments)
            await gate.wait()
            return found

        hall.sit(capacity=1, skills=("encode", "other"))
        await hall.settle()
        hall.storage.claim_tasks = slow  # type: ignore[method-assign, assignment]
        hall.dispatcher.match_index.mark_waiting(
            make_task("phantom", type="other").queue_key
        )  # its write failed
        hall.dispatcher.drain("w1", False)
        await hall.settle()
        await hall.wait(make_task("late"))
        await hall.settle()
        gate.set()
        await hall.settle()
        assert hall.sent == {"w1": ["late"]}

    play(body)


def test_a_stopped_dispatcher_offers_nothing() -> None:
    async def body(hall: Hall) -> None:
        hall.sit()
        await hall.settle()
        await hall.dispatcher.stop()
        await hall.wait(make_task("first"))
        await hall.settle()
        assert (hall.sent, hall.reserve()) == ({}, None)
        hall.dispatcher.start()
        hall.dispatcher.wake()
        await hall.settle()
        assert hall.sent == {"w1": ["first"]}

    play(body)


def test_a_worker_whose_session_was_replaced_does_not_hide_what_waits_from_others() -> None:
    async def body(hall: Hall) -> None:
        hall.sit("w1")
        await hall.storage.register(make_worker("w1"), 30)  # it sits elsewhere by now
        hall.sit("w2", skills=("other",))
        await hall.settle()
        await hall.wait(make_task("a"))
        await hall.settle()
        assert hall.sent == {}
        hall.sit("w3")
        await hall.settle()
        assert hall.sent == {"w3": ["a"]}

    play(body)


class Gate:
    """An admission that the test opens."""

    def __init__(self) -> None:
        self.open = False

    def allows(self, task: Task) -> bool:
        return self.open or task.type != "encode"

    def room(self, queue_key: QueueKey, wanted: int) -> int:
        return wanted if self.open or queue_key.type != "encode" else 0


def test_what_admission_refuses_waits_and_is_offered_once_it_is_allowed() -> None:
    async def body(hall: Hall) -> None:
        gate = Gate()
        hall.dispatcher = Dispatcher(hall.storage, Clock(START), admission=gate)
        hall.sit(skills=("encode", "other"))
        await hall.settle()
        assert hall.reserve("refused", type="encode") is None
        await hall.wait(make_task("refused", type="encode"), make_task("allowed", type="other"))
        await hall.settle()
        assert hall.sent == {"w1": ["allowed"]}
        # when
        gate.open = True
        hall.dispatcher.wake()
        await hall.settle()
        assert hall.sent == {"w1": ["allowed", "refused"]}

    play(body)
