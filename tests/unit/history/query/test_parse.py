from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regista.errors import BadQuery
from regista.history.query import parse_query
from regista.history.query.parse import MAX_LENGTH, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        ('"say ""hi"""', 'say "hi"'),
        (r"'C:\new'", r"C:\new"),
        (r"'a\\b'", r"a\b"),
        ("-12", -12),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("TRUE", True),
        ("false", False),
    ],
)
def test_a_literal_means_what_was_written(text: str, value: Any) -> None:
    where = parse(f"Size = {text}").where
    assert where is not None
    (literal,) = where.values  # type: ignore[union-attr]
    assert literal.value == value
    assert type(literal.value) is type(value)


def test_keywords_have_no_case_and_names_may_begin_like_them() -> None:
    query = parse("Android = 1 and Orange in (2) Or notation is Null order By Description desc, Asce")
    assert query.where is not None
    assert [key.name.text for key in query.order] == ["Description", "Asce"]
    assert [key.descending for key in query.order] == [True, False]


def test_a_name_in_backticks_may_hold_other_characters() -> None:
    where = parse("`a.b-c` = 1").where
    assert where is not None
    assert where.name.text == "a.b-c"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("a == 1", 3, "one = is enough"),
        ("a = 1 && b = 2", 6, "AND is written out"),
        ("a = 1 | b = 2", 6, "OR is written out"),
        ("a = ", 4, "expected a value"),
        ("a", 1, "expected an operator"),
        ("a NOT = 1", 6, "expected IN, BETWEEN, STARTS_WITH or LIKE"),
        ("a IS 5", 5, "expected NOT or NULL, got '5'"),
        ("a IN ()", 6, "expected a value"),
        ("a = 1 ORDER a", 12, "expected BY"),
        ("a = 12abc", 4, "expected a value"),
        ("; DROP TABLE jobs", 0, "got ';'"),
        ('a = "b', 4, 'a closing "'),
        ("a = 1)", 5, "got ')'"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, position: int, words: str) -> None:
    with pytest.raises(BadQuery) as caught:
        parse(text)
    assert caught.value.facts["position"] == position
    assert words in str(caught.value)


def test_a_query_without_end_is_refused_and_one_without_bottom_too() -> None:
    with pytest.raises(BadQuery, match="at most 10,000 characters"):
        parse("x" * (MAX_LENGTH + 1))
    with pytest.raises(BadQuery, match="inside each other"):
        parse("NOT " * 60 + "a = 1")
    assert parse("(" * 2000 + "a = 1" + ")" * 2000).where is not None


@given(st.text(max_size=60) | st.text(alphabet="aZ_'\"`()=<>! ,.-+09\\%;\0é\n", max_size=40))
@example("'" * 39)
@example("a = '\\")
def test_whatever_is_written_is_understood_or_refused_in_words(text: str) -> None:
    refusal = None
    try:
        parse_query(text, {})
    except BadQuery as error:
        refusal = error
    if refusal is not None:
        assert 0 <= int(str(refusal.facts["position"])) <= len(text)
        assert refusal.facts["expected"]
