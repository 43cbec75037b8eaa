from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.model.attributes import AttributeType, WrongAttribute, canonical_time, checked, declared_types

DECLARED = declared_types(
    {
        "Asset": "Keyword",
        "Name": "Text",
        "Size": "Long",
        "Ratio": "Double",
        "Hd": "Bool",
        "Due": "Datetime",
        "Tags": "KeywordList",
    }
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_long_is_another_word_for_int() -> None:
    assert DECLARED["Size"] is AttributeType.INT


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"Asset": "Keywrd"}, "did you mean Keyword?"),
        ({"Asset": None}, "expected one of Keyword"),
        ({"StartTime": "Datetime"}, "every job has that by itself"),
        ({"a b": "Keyword"}, "a name of letters"),
        ({"": "Keyword"}, "a name of letters"),
    ],
)
def test_a_declaration_that_is_wrong_says_why(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(WrongAttribute) as caught:
        declared_types(declared)
    assert words in str(caught.value)


def test_values_that_fit_are_kept_with_their_types() -> None:
    given = {"Asset": "a", "Name": "b c", "Size": 2**63 - 1, "Ratio": 1, "Hd": False, "Tags": ("x", "y")}
    kept = checked(DECLARED, {**given, "Due": "2026-01-31T13:00:00+01:00"})
    assert kept == {**given, "Tags": ["x", "y"], "Due": NOON}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Asset", 1),
        ("Asset", "x" * 256),
        ("Asset", "a\0b"),
        ("Asset", "\ud800"),
        ("Name", "é" * 1025),
        ("Size", "1"),
        ("Size", 1.0),
        ("Size", True),
        ("Size", 2**63),
        ("Ratio", float("nan")),
        ("Ratio", "1"),
        ("Hd", 1),
        ("Due", "2026-01-31T12:00:00"),
        ("Due", "soon"),
        ("Due", 5),
        ("Tags", "x"),
        ("Tags", [1]),
        ("Tags", ["x"] * 101),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_was_expected(name: str, value: Any) -> None:
    with pytest.raises(WrongAttribute, match=f"'{name}': expected .*, got"):
        checked(DECLARED, {name: value})


def test_a_name_that_is_not_declared_is_refused_where_any_is() -> None:
    with pytest.raises(WrongAttribute, match="'Aset' is not declared; did you mean Asset"):
        checked(DECLARED, {"Aset": "x"})
    assert checked({}, {"Anything": 1}) == {"Anything": 1}


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_the_text_of_instants_is_in_their_order(one: datetime, other: datetime) -> None:
    assert (canonical_time(one) < canonical_time(other)) == (one < other)
    assert len(canonical_time(one)) == 27
    assert datetime.fromisoformat(canonical_time(one)) == one


def test_an_instant_has_one_text_in_whatever_zone_it_was_said() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5)))
    assert canonical_time(there) == canonical_time(NOON) == "2026-01-31T12:00:00.000000Z"
