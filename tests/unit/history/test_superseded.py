"""Which entries of a batch count."""

from regista.history.superseded import without_superseded
from regista.testing.conformance.history import make_entry


def test_a_batch_in_which_nothing_is_told_anew_is_kept_whole_in_the_order_of_its_numbers() -> None:
    first, other, second = make_entry(1, "a"), make_entry(2, "b"), make_entry(3, "a", first_seq=2)
    assert without_superseded([second, first, other]) == [first, other, second]


def test_what_is_told_anew_takes_the_place_of_what_was_told_from_there_on() -> None:
    start, old, older = make_entry(1, "a"), make_entry(2, "a", first_seq=2), make_entry(3, "a", first_seq=5)
    anew, other = make_entry(4, "a", first_seq=2), make_entry(5, "b")
    assert without_superseded([start, old, older, anew, other]) == [start, anew, other]


def test_an_entry_that_comes_twice_replaces_nothing() -> None:
    entry = make_entry(1, "a")
    assert without_superseded([entry, entry]) == [entry, entry]
