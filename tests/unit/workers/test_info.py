"""A worker as people see it."""

from datetime import UTC, datetime

from msgspec.structs import replace

from regista.dispatch.connected import CallbackConnection, ConnectedWorker
from regista.model import Worker
from regista.workers.info import connected_worker_info, stored_worker_info

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = Worker(id="w", skills=("a", "b"), capacity=2)


def connected(*holding: str, draining: bool = False) -> ConnectedWorker:
    one = ConnectedWorker(
        Worker(id="w", skills=("a",), capacity=2, transport="poll"),
        CallbackConnection(_nothing, _nothing),
        holding,
    )
    one.draining = draining
    one.credit = 5  # polls are open
    return one


def _nothing(_: object) -> None:
    return None


def test_the_state_says_whether_it_takes_tasks() -> None:
    assert connected_worker_info(WORKER, connected(), False).state == "ready"
    assert connected_worker_info(WORKER, connected("x", "y"), False).state == "busy"
    assert connected_worker_info(WORKER, connected(draining=True), False).state == "draining"
    assert connected_worker_info(WORKER, connected(), True).state == "silent"


def test_of_a_worker_at_another_instance_the_store_tells() -> None:
    assert stored_worker_info(WORKER, False, ("x",)).state == "ready"
    assert stored_worker_info(WORKER, False, ("x",)).free == 1
    assert stored_worker_info(WORKER, False, ("x", "y")).state == "busy"
    assert stored_worker_info(replace(WORKER, draining=True), False, ()).state == "draining"
    assert stored_worker_info(WORKER, True, ()).state == "silent"
    assert stored_worker_info(WORKER, True, ()).free == 0


def test_of_one_that_is_cut_off_elsewhere_the_store_tells_since_when() -> None:
    gone = replace(WORKER, disconnected_at=NOW, draining=True)
    facts = stored_worker_info(gone, False, ("x",))
    assert (facts.state, facts.since, facts.free) == ("disconnected", NOW, 0)
    assert stored_worker_info(gone, True, ()).state == "silent"


def test_a_worker_whose_stream_is_closed_is_disconnected_since_then() -> None:
    gone = connected(draining=True)
    gone.disconnected_at = NOW
    facts = connected_worker_info(WORKER, gone, False)
    assert (facts.state, facts.since) == ("disconnected", NOW)
    assert connected_worker_info(WORKER, gone, True).state == "silent"


def test_it_tells_what_is_held_what_is_free_and_what_could_be_started() -> None:
    one = connected("x")
    one.last_seen = NOW
    facts = connected_worker_info(WORKER, one, False)

    assert (facts.holding, facts.free, facts.available, facts.last_seen) == (("x",), 1, ("a",), NOW)
    assert (facts.worker.skills, facts.worker.transport) == (("a", "b"), "poll")
