from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from regista.model import QueueKey, QueueStatus, Task
from regista.storage.base import AGEING_STEP_S
from regista.storage.task_queues import ClientQueue, TaskQueues, order_key

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
ENCODE, PROBE = QueueKey("encode", "encode"), QueueKey("probe", "probe")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def make_task(
    id: str, type: str = "encode", queue: str = "", queued_s: float = 0, priority: float = 0, client: str = ""
) -> Task:
    return Task(
        id=id, job_id="job", type=type, queue=queue, queued_at=at(queued_s), priority=priority, client=client
    )


class Hall:
    """Lanes, and where each task stands in them."""

    def __init__(self, *tasks: Task) -> None:
        self.lanes = TaskQueues()
        self.lines: dict[str, ClientQueue] = {}
        for task in tasks:
            self.add(task)

    def add(self, task: Task) -> None:
        self.lines[task.id] = self.lanes.add(task)

    def discard(self, id: str) -> None:
        self.lanes.discard(self.lines.pop(id), id)

    def take(self, *lanes: QueueKey, limit: int = 1000) -> list[str]:
        """What these lanes give, best first, each taken out."""
        taken = self.lanes.take(lanes, limit)
        for id in taken:
            del self.lines[id]
        return taken


_tasks = st.lists(
    st.builds(
        make_task,
        id=st.just(""),
        type=st.sampled_from(["encode", "probe"]),
        queue=st.sampled_from(["", "night"]),
        queued_s=st.integers(0, 3),
        priority=st.sampled_from([0, 0, 0.05, -1]),
    ),
    max_size=30,
)
_lanes = st.sets(st.sampled_from([ENCODE, PROBE, QueueKey("night", "encode"), QueueKey("night", "probe")]))


@given(tasks=_tasks, gone=st.sets(st.integers(0, 29)), asked=_lanes)
def test_one_clients_tasks_come_best_first_whatever_their_lane(
    tasks: list[Task], gone: set[int], asked: set[QueueKey]
) -> None:
    hall, waiting = Hall(), dict[str, Task]()
    for arrival, task in enumerate(tasks):
        id = str(arrival)
        waiting[id] = Task(**{name: getattr(task, name) for name in task.__struct_fields__} | {"id": id})
        hall.add(waiting[id])
    for arrival in gone & set(range(len(tasks))):
        hall.discard(str(arrival))
        del waiting[str(arrival)]
    asked_for = [task for task in waiting.values() if task.queue_key in asked]
    assert len(hall.lanes) == len(waiting)
    assert hall.lanes.has_any(asked) == bool(asked_for)
    best_first = sorted(asked_for, key=lambda task: (order_key(task), int(task.id)))
    assert hall.take(*sorted(asked)) == [task.id for task in best_first]
    assert not hall.lanes.has_any(asked)
    assert len(hall.lanes) == len(waiting) - len(asked_for)


@given(
    tasks=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["encode", "probe"])), max_size=40),
    limits=st.lists(st.integers(1, 3), min_size=1),
)
def test_between_two_turns_of_a_client_everybody_who_waits_has_one(
    tasks: list[tuple[str, str]], limits: list[int]
) -> None:
    hall = Hall(*(make_task(str(n), type=kind, client=who) for n, (who, kind) in enumerate(tasks)))
    served: list[str] = []
    for limit in limits * 40:
        served += [tasks[int(id)][0] for id in hall.take(ENCODE, PROBE, limit=limit)]
    left = dict.fromkeys("abc", 0) | {who: sum(one == who for one, _ in tasks) for who in "abc"}
    for n, who in enumerate(served):
        left[who] -= 1
        until = served[n + 1 :].index(who) + n + 1 if who in served[n + 1 :] else len(served)
        others = [one for one, count in left.items() if one != who and count]
        if who in served[n + 1 :]:
            assert set(others) <= set(served[n + 1 : until])


def test_a_crowd_of_one_client_does_not_keep_another_waiting() -> None:
    hall = Hall(*(make_task(f"a{n}", client="ann") for n in range(100)))
    hall.add(make_task("b0", client="bob", queued_s=1000))
    assert hall.take(ENCODE, limit=3) == ["a0", "b0", "a1"]


def test_who_sends_task_after_task_is_not_always_first() -> None:
    hall = Hall(*(make_task(f"a{n}", client="ann") for n in range(3)))
    hall.add(make_task("b0", client="bob"))
    order = []
    for n in range(3):
        (a, b) = hall.take(ENCODE, limit=2)
        order += [a, b]
        hall.add(make_task(f"b{n + 1}", client="bob"))
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_clients_take_turns_in_each_lane_even_when_lanes_are_asked_in_turns() -> None:
    """With one row of turns for all lanes, ann would get every encode and bob every probe."""
    hall = Hall()
    for n in range(4):
        for client in ("ann", "bob"):
            hall.add(make_task(f"{client} e{n}", client=client))
            hall.add(make_task(f"{client} p{n}", type="probe", client=client))
    takes = [(hall.take(ENCODE, limit=1), hall.take(PROBE, limit=1)) for _ in range(4)]
    assert [encode[0][:3] for encode, _ in takes] == ["ann", "bob", "ann", "bob"]
    assert [probe[0][:3] for _, probe in takes] == ["ann", "bob", "ann", "bob"]


def test_a_point_of_priority_is_worth_a_step_of_waiting() -> None:
    assert order_key(make_task("a", priority=2)) == order_key(make_task("b", queued_s=-2 * AGEING_STEP_S))


def test_a_task_that_comes_back_stands_where_its_new_age_puts_it() -> None:
    hall = Hall(make_task("a"), make_task("b", queued_s=1))
    hall.discard("a")
    hall.add(make_task("a", queued_s=2))
    assert hall.take(ENCODE) == ["b", "a"]


def test_nothing_lingers_of_tasks_that_were_taken_out_of_turn() -> None:
    hall = Hall(make_task("stays", queued_s=-1))
    for n in range(20_000):
        hall.add(make_task(str(n), queued_s=n))
        hall.discard(str(n))
    (queue,) = hall.lines.values()
    assert (len(queue), len(queue._heap) <= 67) == (1, True)
    hall.discard("stays")
    assert (len(hall.lanes), hall.lanes.has_any([ENCODE]), hall.lanes.status()) == (0, False, [])


def test_the_status_tells_each_clients_line_and_its_oldest_task() -> None:
    hall = Hall(
        make_task("old", queued_s=5, priority=-3, client="ann"),
        make_task("urgent", queued_s=9, priority=3, client="ann"),
        make_task("plain", queued_s=7, client="bob"),
        make_task("other", type="probe", queued_s=8, client="ann"),
    )
    assert hall.lanes.status() == [
        QueueStatus(ENCODE, "ann", 2, at(5)),
        QueueStatus(ENCODE, "bob", 1, at(7)),
        QueueStatus(PROBE, "ann", 1, at(8)),
    ]
    hall.discard("old")
    assert hall.lanes.status()[0] == QueueStatus(ENCODE, "ann", 1, at(9))
