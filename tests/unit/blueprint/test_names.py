"""Names: what may be called what, and hints for the mistyped."""

from hypothesis import given
from hypothesis import strategies as st

from regista.blueprint.names import did_you_mean, name_problem


@given(st.from_regex(r"[A-Za-z0-9_.:-]{1,128}", fullmatch=True))
def test_plain_names_are_fine(name: str) -> None:
    assert name_problem("state name", name) is None


def test_a_problem_says_what_was_expected_and_what_came() -> None:
    assert name_problem("state name", "a b") == (
        "state name: expected 1 to 128 letters, digits or _ - . : got 'a b'"
    )


def test_close_names_are_suggested_and_strange_ones_are_not() -> None:
    assert did_you_mean("finised", ["finished", "start"]) == "; did you mean 'finished'?"
    assert did_you_mean("xyz", ["finished", "start"]) == ""
