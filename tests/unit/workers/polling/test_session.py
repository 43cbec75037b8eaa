"""What is known of a worker between two requests."""

from collections.abc import Sequence

from regista.model import Task
from regista.workers.polling.session import PollingSession, PollingSessions


class Quiet:
    """A socket that nobody listens to."""

    def stop(self, attempt_ids: Sequence[str]) -> None:
        return None

    def close(self, code: int, reason: str) -> None:
        return None


def new_session(worker_id: str = "w") -> PollingSession:
    return PollingSession(worker_id, lambda session: None, lambda session, attempt_ids: None)


def task(id: str) -> Task:
    return Task(id=id, job_id="j", type="work", worker_id="w", transitions={"success": "done"})


def test_a_worker_is_known_while_its_session_has_a_seat() -> None:
    seats = {"w": 7}
    sessions = PollingSessions(new_session, lambda worker_id, number: seats.get(worker_id) == number)
    session = sessions.open("w")
    assert sessions.find_connected("w") is None  # it only polls
    session.registered(7, ("a",), provisional=False)
    assert sessions.find_connected("w") is session
    seats["w"] = 8
    assert sessions.find_connected("w") is None


def test_what_left_after_a_heartbeat_began_is_fresh_to_it() -> None:
    session = new_session()
    session.handed([task("early")], 10.0)
    session.handed([task("late")], 12.0)

    assert session.fresh(11.0) == {"late-1"}


def test_what_has_ended_is_remembered_for_a_minute() -> None:
    session = new_session()
    session.ended("a", 0.0)
    session.ended("b", 50.0)
    assert session.has_ended("a")
    session.ended("c", 70.0)
    assert [session.has_ended(name) for name in "abc"] == [False, True, True]


def test_what_has_left_is_recalled_until_its_result_comes_or_a_minute_has_passed() -> None:
    session = new_session()
    session.handed([task("a"), task("b")], 0.0)
    known = session.recall("a-1")
    assert known is not None
    assert (known.attempt, known.worker_id, known.transitions) == (1, "w", {"success": "done"})
    session.ended("a-1", 1.0)
    assert session.recall("a-1") is None
    session.handed([task("c")], 61.0)
    assert [session.recall(name) is None for name in ("b-1", "c-1")] == [True, False]


def test_what_nobody_could_write_down_has_not_ended() -> None:
    session = new_session()
    session.ended("a-1", 1.0)
    session.not_ended("a-1")
    assert not session.has_ended("a-1")


def test_a_word_goes_to_the_workers_own_socket_else_to_all_that_have_no_name() -> None:
    sessions = PollingSessions(new_session, lambda worker_id, number: True)
    own, nameless = Quiet(), Quiet()
    sessions.nameless[nameless] = None
    assert sessions.sockets_of("w") == [nameless]
    sessions.open("w").socket = own
    assert sessions.sockets_of("w") == [own]


def test_those_who_are_gone_are_forgotten_now_and_then() -> None:
    sessions = PollingSessions(new_session, lambda worker_id, number: False)
    for number in range(10_000):
        sessions.open(f"w{number}")

    assert len(list(sessions)) < 200
