from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from regista.dispatch.connected import CallbackConnection, ConnectedWorker
from regista.dispatch.matcher import MatchIndex
from regista.dispatch.strategies import STRATEGY_TABLE, cost, is_warm, strategy_of
from regista.model import STRATEGIES, Profile, QueueKey, Task, Worker


def queue_key(strategy: str | None = None, **requirements: Any) -> QueueKey:
    return Task(id="j_1_0", job_id="j", type="render", strategy=strategy, requirements=requirements).queue_key


_profiles = st.builds(
    lambda price, special, reputation, hot: Profile(
        cost_per_second=price,
        cost_per_skill={} if special is None else {"render": special},
        reputation=reputation,
        hot=hot,
    ),
    st.sampled_from([0.0, 1.0, 2.5]),
    st.none() | st.sampled_from([0.5, 2.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([(), ("render",), ("sd",), ("other",)]),
)
_workers = st.lists(
    st.tuples(_profiles, st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=12
)  # profile, capacity, tasks in hand


def crowd(workers: list[tuple[Profile, int, int]]) -> MatchIndex:
    index = MatchIndex()
    for number, (profile, capacity, held) in enumerate(workers):
        who = Worker(id=f"w{number}", skills=("render",), capacity=capacity, profile=profile)
        connected = ConnectedWorker(who, CallbackConnection(lambda tasks: None, lambda attempts: None))
        index.connected.add(connected)
        for attempt in range(min(held, capacity)):
            index.connected.hold(connected, f"{number}.{attempt}", "render")
    return index


def chosen(index: MatchIndex, there: QueueKey) -> tuple[ConnectedWorker | None, list[ConnectedWorker]]:
    return index.choose(there, fresh=True), [connected for connected in index.connected if connected.free]


def test_there_is_a_function_for_every_name() -> None:
    assert tuple(STRATEGY_TABLE) == STRATEGIES
    assert strategy_of(queue_key()) is STRATEGY_TABLE["default"]
    assert strategy_of(queue_key("cheapest")) is STRATEGY_TABLE["cheapest"]
    assert strategy_of(queue_key("forgotten")) is STRATEGY_TABLE["default"]


@given(_workers)
def test_default_takes_the_warm_then_the_cheap_then_the_free(
    workers: list[tuple[Profile, int, int]],
) -> None:
    for there in (queue_key(), queue_key(models={})):
        connected, free = chosen(crowd(workers), there)
        assert (connected is None) == (not free)
        if connected is not None:
            key = [(not is_warm(one.worker, there), cost(one.worker, there), -one.free) for one in free]
            mine = (not is_warm(connected.worker, there), cost(connected.worker, there), -connected.free)
            assert mine == min(key)


@given(_workers)
def test_cheapest_looks_at_the_price_alone(workers: list[tuple[Profile, int, int]]) -> None:
    there = queue_key("cheapest")
    connected, free = chosen(crowd(workers), there)
    if connected is not None:
        mine = (cost(connected.worker, there), -connected.free)
        assert mine == min((cost(one.worker, there), -one.free) for one in free)


@given(_workers)
def test_best_value_divides_the_price_by_the_reputation(workers: list[tuple[Profile, int, int]]) -> None:
    there = queue_key("best_value")
    connected, free = chosen(crowd(workers), there)
    if connected is not None:
        values = [cost(one.worker, there) / max(one.worker.profile.reputation, 0.01) for one in free]
        assert cost(connected.worker, there) / max(connected.worker.profile.reputation, 0.01) == min(values)


@given(_workers)
def test_least_connections_takes_who_holds_the_fewest(workers: list[tuple[Profile, int, int]]) -> None:
    connected, free = chosen(crowd(workers), queue_key("least_connections"))
    if connected is not None:
        assert len(connected.attempts) == min(len(one.attempts) for one in free)


@given(st.lists(_profiles, min_size=1, max_size=8), st.integers(1, 5))
def test_round_robin_gives_everybody_a_task_before_anybody_a_second(
    profiles: list[Profile], rounds: int
) -> None:
    index = crowd([(profile, 100, 0) for profile in profiles])
    for turn in range(rounds):
        got = []
        for number in range(len(profiles)):
            connected = index.choose(queue_key("round_robin"), fresh=True)
            assert connected is not None
            index.connected.hold(connected, f"{turn}.{number}", "render")
            got.append(connected.worker.id)
        assert sorted(got) == sorted(f"w{number}" for number in range(len(profiles)))


def test_warm_is_who_has_the_skill_or_all_needed_models_loaded() -> None:
    def warm(hot: tuple[str, ...], **requirements: Any) -> bool:
        return is_warm(Worker(id="w", skills=(), profile=Profile(hot=hot)), queue_key(**requirements))

    assert warm(("render",))
    assert not warm(())
    assert not warm(("sd",))
    assert warm(("sd",), models=["sd"])
    assert not warm(("sd",), models=["sd", "vae"])
    assert warm(("sd", "vae"), installed_models=["sd", "vae"])
