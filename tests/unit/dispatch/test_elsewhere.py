"""What other instances have free, and who gets a task because of it."""

from regista.dispatch.connected import CallbackConnection, ConnectedWorker
from regista.dispatch.elsewhere import Elsewhere
from regista.model import FreeSlots, Profile, QueueKey, Worker, match_options_text


def worker(cost: float = 1.0, *skills: str, hot: tuple[str, ...] = ()) -> Worker:
    return Worker(id="w", skills=skills or ("work",), profile=Profile(cost_per_second=cost, hot=hot))


def connected(cost: float = 1.0, *holding: str) -> ConnectedWorker:
    return ConnectedWorker(
        worker(cost), CallbackConnection(lambda tasks: None, lambda attempts: None), holding
    )


def queue_key(strategy: str | None = None) -> QueueKey:
    return QueueKey("work", "work", match_options_text({}, None, strategy))


def elsewhere(**slots: FreeSlots) -> Elsewhere:
    known = Elsewhere()
    known.learn({name: [one] for name, one in slots.items()})
    return known


def test_nobody_elsewhere_is_better_than_anybody() -> None:
    known = elsewhere()
    assert not known.rivals
    assert known.better_than(None, queue_key()) is None
    assert known.better_than(connected(), queue_key()) is None


def test_whoever_has_a_slot_is_better_than_nobody_but_only_if_it_may_do_the_task() -> None:
    known = elsewhere(
        i1=FreeSlots(worker(1.0, "other"), 1, 5), i2=FreeSlots(worker(), 1, 5), i3=FreeSlots(worker(), 0, 0)
    )
    rival = known.better_than(None, queue_key())
    assert rival is not None
    assert rival.instance == "i2"


def test_a_cheaper_or_a_warm_worker_elsewhere_wins_and_a_tie_is_ours() -> None:
    known = elsewhere(i1=FreeSlots(worker(0.5), 1, 5))
    assert known.better_than(connected(0.5), queue_key("cheapest")) is None
    assert known.better_than(connected(0.4), queue_key("cheapest")) is None
    rival = known.better_than(connected(0.6), queue_key("cheapest"))
    assert rival is not None
    warm = elsewhere(i1=FreeSlots(worker(9.0, hot=("work",)), 1, 5))
    assert warm.better_than(connected(0.1), queue_key()) is not None


def test_what_is_left_to_another_counts_until_there_is_news() -> None:
    known = elsewhere(i1=FreeSlots(worker(), 1, 2), i2=FreeSlots(worker(2.0), 1, 1))
    woken = []
    while (rival := known.better_than(None, queue_key("cheapest"))) is not None:
        woken.append(rival.take())
    assert woken == ["i1", "i1", "i2"]
    known.learn({"i1": [FreeSlots(worker(), 1, 1)]})
    assert known.better_than(None, queue_key("cheapest")) is not None


def test_strategies_that_spread_look_at_the_load_of_the_least_busy() -> None:
    known = elsewhere(i1=FreeSlots(worker(), 2, 20, held=1))
    for strategy in ("round_robin", "least_connections"):
        assert known.better_than(connected(1.0, "a"), queue_key(strategy)) is None
        assert known.better_than(connected(1.0, "a", "b"), queue_key(strategy)) is not None
    rival = known.better_than(connected(1.0, "a", "b"), queue_key("round_robin"))
    assert rival is not None
    rival.take()
    rival.take()  # one for each of its two seats: now it is as busy as ours
    assert known.better_than(connected(1.0, "a", "b"), queue_key("round_robin")) is None
