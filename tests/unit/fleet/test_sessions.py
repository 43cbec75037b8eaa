"""What is known of a worker between two requests."""

from collections.abc import Sequence

from regista.fleet.sessions import Session, Sessions
from regista.model import Worker


class Quiet:
    """A socket that nobody listens to."""

    def stop(self, attempt_ids: Sequence[str]) -> None:
        return None

    def close(self, code: int, reason: str) -> None:
        return None


def test_a_worker_is_known_while_its_session_has_a_seat() -> None:
    seats = {"w": 7}
    sessions = Sessions(lambda worker_id, number: seats.get(worker_id) == number)
    session = sessions.open("w")
    assert sessions.known("w") is None  # it only polls
    session.arrived(Worker(id="w", skills=("a",), session=7), ("a",), provisional=False)
    assert sessions.known("w") is session
    seats["w"] = 8
    assert sessions.known("w") is None


def test_what_left_after_a_heartbeat_began_is_fresh_to_it() -> None:
    session = Session()
    session.handed(["early"], 10.0)
    session.handed(["late"], 12.0)

    assert session.fresh(11.0) == {"late"}


def test_what_has_ended_is_remembered_for_a_minute() -> None:
    session = Session()
    session.ended("a", 0.0)
    session.ended("b", 50.0)
    assert session.has_ended("a")
    session.ended("c", 70.0)
    assert [session.has_ended(name) for name in "abc"] == [False, True, True]


def test_a_word_goes_to_the_workers_own_socket_else_to_all_that_have_no_name() -> None:
    sessions = Sessions(lambda worker_id, number: True)
    own, nameless = Quiet(), Quiet()
    sessions.nameless[nameless] = None
    assert sessions.lines_to("w") == [nameless]
    sessions.open("w").line = own
    assert sessions.lines_to("w") == [own]


def test_those_who_are_gone_are_forgotten_now_and_then() -> None:
    sessions = Sessions(lambda worker_id, number: False)
    for number in range(10_000):
        sessions.open(f"w{number}")

    assert len(list(sessions)) < 200
