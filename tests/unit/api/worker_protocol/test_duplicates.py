"""Two processes with one worker's id."""

from regista.api.worker_protocol.duplicates import duplicate_worker
from regista.model import Worker

NEWER = Worker(
    id="w", skills=(), session=7, instance="i1", hostname="stage", address="10.0.0.1:5", incarnation="b"
)


def test_another_process_is_named_by_where_it_came_from() -> None:
    assert duplicate_worker(NEWER, 6, "a", "i1") == "10.0.0.1:5 (stage)"
    assert duplicate_worker(NEWER, 6, "a", "i0") == "10.0.0.1:5 (stage), at instance i1"
    assert duplicate_worker(NEWER, 6, "a", "i1", "10.0.0.1:6") == "10.0.0.1:6 (stage)"


def test_one_that_says_nothing_of_itself_is_taken_for_another() -> None:
    nobody = Worker(id="w", skills=(), session=7, instance="i1")
    assert duplicate_worker(nobody, 6, "", "i1") == "an unknown address"
    assert duplicate_worker(NEWER, 6, "", "i1")


def test_the_same_process_and_an_older_session_are_no_rivals() -> None:
    assert duplicate_worker(NEWER, 6, "b", "i1") == ""
    assert duplicate_worker(NEWER, 7, "a", "i1") == ""
    assert duplicate_worker(None, 7, "a", "i1") == ""
