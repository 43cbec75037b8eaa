from hypothesis import given
from hypothesis import strategies as st

from regista.history.query.index import key_of, keys_of, text_index, word_entry, words_in

_numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)


@given(_numbers, _numbers)
def test_keys_of_numbers_are_in_their_order(one: float, other: float) -> None:
    low, high = sorted((one, other))
    left, right = key_of(low), key_of(high)
    assert left is not None
    assert right is not None
    assert left <= right
    assert float(low) == float(high) or left < right


@given(st.text(max_size=300), st.text(max_size=300))
def test_keys_of_words_are_in_their_order(one: str, other: str) -> None:
    low, high = sorted((one, other))
    assert (key_of(low) or "") <= (key_of(high) or "")


def test_a_text_is_split_into_words_without_regard_to_case() -> None:
    assert words_in("Été_2026 à-la.PLAGE!") == {"été_2026", "à", "la", "plage"}


def test_every_word_of_a_text_can_be_looked_for() -> None:
    found = text_index({"Name": "Summer Holiday", "Size": 3, "not askable": "x"})
    assert word_entry("Name", "holiday") in found
    assert word_entry("Name", "summer") in found
    assert "askable" not in found
    assert text_index({"Size": 3}) == ""


def test_keys_lead_to_every_value_that_can_be_compared() -> None:
    attributes = {"A": "x", "L": ["x", "y", "x"], "N": 1, "T": True, "D": {"a": 1}, "X": None, "a b": "no"}
    found = list(keys_of(attributes))
    assert [name for name, _ in found] == ["A", "L", "L", "N"]
    assert found[0][1] == found[1][1]
