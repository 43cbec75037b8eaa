from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from regista.model import Task, Worker
from regista.storage.base import AGEING_STEP_S, lane_name, lane_of
from regista.storage.lanes import Lanes, order_key

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def make_task(
    id: str, type: str = "encode", queue: str = "", queued_s: float = 0, priority: float = 0
) -> Task:
    queued_at = START + timedelta(seconds=queued_s)
    return Task(id=id, job_id="job", type=type, queue=queue, queued_at=queued_at, priority=priority)


def worker(*skills: str, queues: tuple[str, ...] | None = None) -> Worker:
    return Worker(id="w", skills=skills, queues=queues)


def take(lanes: Lanes, who: Worker, tasks: dict[str, Task]) -> list[str]:
    """All that the worker may have, best first, each taken out."""
    taken = []
    for id in lanes.best_for(who):
        taken.append(id)
        lanes.discard(tasks[id].lane, id)
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
_workers = st.builds(
    lambda skills, queues: worker(*skills, queues=queues),
    st.lists(st.sampled_from(["encode", "probe", "sing"]), unique=True),
    st.none() | st.lists(st.sampled_from(["encode", "probe", "night"]), unique=True).map(tuple),
)


@given(tasks=_tasks, gone=st.sets(st.integers(0, 29)), who=_workers)
def test_a_worker_gets_what_it_serves_best_first(tasks: list[Task], gone: set[int], who: Worker) -> None:
    lanes, waiting = Lanes(), dict[str, Task]()
    for arrival, task in enumerate(tasks):
        id = str(arrival)
        waiting[id] = Task(**{name: getattr(task, name) for name in task.__struct_fields__} | {"id": id})
        lanes.add(waiting[id])
    for arrival in gone & set(range(len(tasks))):
        lanes.discard(waiting.pop(str(arrival)).lane, str(arrival))
    served = [task for task in waiting.values() if who.serves(*task.lane)]
    assert len(lanes) == len(waiting)
    assert lanes.serve(who) == bool(served)
    best_first = sorted(served, key=lambda task: (order_key(task), int(task.id)))
    assert take(lanes, who, waiting) == [task.id for task in best_first]
    assert not lanes.serve(who)
    assert len(lanes) == len(waiting) - len(served)


def test_a_point_of_priority_is_worth_a_step_of_waiting() -> None:
    assert order_key(make_task("a", priority=2)) == order_key(make_task("b", queued_s=-2 * AGEING_STEP_S))


def test_a_task_that_comes_back_stands_where_its_new_age_puts_it() -> None:
    lanes, first, second = Lanes(), make_task("a"), make_task("b", queued_s=1)
    lanes.add(first)
    lanes.add(second)
    lanes.discard(first.lane, "a")
    again = make_task("a", queued_s=2)
    lanes.add(again)
    assert take(lanes, worker("encode"), {"a": again, "b": second}) == ["b", "a"]


def test_discarding_what_does_not_wait_is_fine() -> None:
    lanes = Lanes()
    lanes.discard(("no", "lane"), "x")
    lanes.add(make_task("a"))
    lanes.discard(("encode", "encode"), "x")
    assert len(lanes) == 1


def test_nothing_lingers_of_tasks_that_were_taken_out_of_turn() -> None:
    lanes, stays = Lanes(), make_task("stays", queued_s=-1)
    lanes.add(stays)
    for n in range(20_000):
        task = make_task(str(n), queued_s=n)
        lanes.add(task)
        lanes.discard(task.lane, task.id)
    (lane,) = lanes._lanes.values()
    assert (len(lane), len(lane._heap) <= 67) == (1, True)
    lanes.discard(stays.lane, "stays")
    assert lanes._lanes == {}


def test_a_lane_is_found_by_its_name() -> None:
    for lane in (("encode", "encode"), ("q-transcode", "probe"), ("", "x")):
        assert lane_of(lane_name(lane)) == lane
