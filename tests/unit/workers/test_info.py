"""A worker as people see it."""

from datetime import UTC, datetime

from msgspec.structs import replace

from regista.dispatch.connected import Seat
from regista.model import Worker
from regista.workers.info import facts_elsewhere, facts_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = Worker(id="w", skills=("a", "b"), capacity=2)


def seat(*holding: str, draining: bool = False) -> Seat:
    one = Seat(Worker(id="w", skills=("a",), capacity=2, transport="poll"), _nothing, _nothing, holding)
    one.draining = draining
    one.credit = 5  # polls are open
    return one


def _nothing(_: object) -> None:
    return None


def test_the_state_says_whether_it_takes_tasks() -> None:
    assert facts_of(WORKER, seat(), False, NOW).state == "ready"
    assert facts_of(WORKER, seat("x", "y"), False, NOW).state == "busy"
    assert facts_of(WORKER, seat(draining=True), False, NOW).state == "draining"
    assert facts_of(WORKER, seat(), True, NOW).state == "silent"


def test_of_a_worker_at_another_instance_the_store_tells() -> None:
    assert facts_elsewhere(WORKER, False, ("x",)).state == "ready"
    assert facts_elsewhere(WORKER, False, ("x",)).free == 1
    assert facts_elsewhere(WORKER, False, ("x", "y")).state == "busy"
    assert facts_elsewhere(replace(WORKER, draining=True), False, ()).state == "draining"
    assert facts_elsewhere(WORKER, True, ()).state == "silent"
    assert facts_elsewhere(WORKER, True, ()).free == 0


def test_of_one_that_is_cut_off_elsewhere_the_store_tells_since_when() -> None:
    gone = replace(WORKER, disconnected_at=NOW, draining=True)
    facts = facts_elsewhere(gone, False, ("x",))
    assert (facts.state, facts.since, facts.free) == ("disconnected", NOW, 0)
    assert facts_elsewhere(gone, True, ()).state == "silent"


def test_a_worker_whose_stream_is_closed_is_disconnected_since_then() -> None:
    gone = seat(draining=True)
    gone.disconnected_at = NOW
    facts = facts_of(WORKER, gone, False, NOW)
    assert (facts.state, facts.since) == ("disconnected", NOW)
    assert facts_of(WORKER, gone, True, NOW).state == "silent"


def test_it_tells_what_is_held_what_is_free_and_what_could_be_started() -> None:
    facts = facts_of(WORKER, seat("x"), False, NOW)

    assert (facts.holding, facts.free, facts.available, facts.last_seen) == (("x",), 1, ("a",), NOW)
    assert (facts.worker.skills, facts.worker.transport) == (("a", "b"), "poll")
