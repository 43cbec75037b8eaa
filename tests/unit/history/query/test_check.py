from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from regista.errors import BadQuery
from regista.history.query import Query, parse_query
from regista.history.query.check import MAX_TESTS, MAX_VALUES
from regista.history.query.nodes import SYSTEM, And, Compare, In, Not, StartsWith
from regista.model.attributes import declared_types

TYPES = declared_types({"Asset": "Keyword", "Size": "Long", "Name": "Text", "Hd": "Bool", "Due": "Datetime"})


def test_an_alias_is_the_field_that_it_stands_for() -> None:
    assert parse_query("WorkflowType = 'x'", {}) == parse_query("BlueprintName = 'x'", {})
    assert parse_query("WorkflowId = 'x'", {}) == parse_query("JobId = 'x'", {})


def test_a_date_is_its_midnight_in_the_zone_of_the_orchestrator() -> None:
    where = parse_query("StartTime > '2024-12-01'", {}, ZoneInfo("Europe/Madrid")).where
    assert where == Compare(SYSTEM["StartTime"], ">", datetime(2024, 11, 30, 23, tzinfo=UTC))


def test_temporals_words_for_a_status_stand_for_ours() -> None:
    def statuses(word: str) -> tuple[object, ...]:
        where = parse_query(f"ExecutionStatus = '{word}'", {}).where
        assert isinstance(where, In)
        return where.values

    assert statuses("Completed") == ("finished",)
    assert statuses("Canceled") == ("cancelled",)
    assert statuses("TimedOut") == ()
    assert statuses("running") == ("running",)
    assert {"pending", "waiting_for_human", "quarantined"} < set(statuses("Running"))
    assert not {"finished", "failed", "cancelled"} & set(statuses("Running"))


def test_like_with_one_percent_sign_at_its_end_is_a_prefix() -> None:
    like, starts = parse_query("Asset LIKE 'a%'", TYPES), parse_query("Asset STARTS_WITH 'a'", TYPES)
    assert like == starts
    assert isinstance(like.where, StartsWith)
    assert parse_query("Asset NOT LIKE 'a%'", TYPES).where == Not(like.where)


def test_between_is_both_of_its_ends() -> None:
    where = parse_query("Size BETWEEN 1 AND 2", TYPES).where
    assert where == parse_query("Size >= 1 AND Size <= 2", TYPES).where
    assert isinstance(where, And)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Assett = 'x'", "did you mean Asset?"),
        ("starttime > '2024-01-01'", "did you mean StartTime?"),
        ("Nothing = 1", "known are BlueprintName"),
        ("status = 'failed'", "did you mean ExecutionStatus?"),
        ("blueprint = 'b'", "did you mean BlueprintName?"),
        ("Asset = 1", "text in quotes for Asset, got 1"),
        ("Size = 'x'", "a number for Size"),
        ("Size = 1e999", "a number for Size"),
        ("Hd = 'true'", "true or false for Hd"),
        ("Due < 'soon'", "a time in quotes"),
        ("StartTime > '2024-13-01'", "a time in quotes"),
        ("ExecutionDuration > 'long'", "a length of time"),
        ("ExecutionStatus = 'Done'", "one of Running, Completed"),
        ("ExecutionStatus STARTS_WITH 'F'", "a Keyword for STARTS_WITH"),
        ("Hd > true", "=, != and IN, which are all that Hd takes"),
        ("Name > 'x'", "= and !=, which are all that Name takes"),
        ("Name IN ('x')", "= and !=, which are all that Name takes"),
        ("Asset LIKE 'a%b'", "no other LIKE is known"),
        ("Asset LIKE 'a'", "no other LIKE is known"),
        ("Asset = 'a\0b'", "text in quotes"),
        ("Size LIKE 'a%'", "a Keyword for LIKE"),
        ("Asset = 'x' ORDER BY Name", "can be sorted by"),
        ("ORDER BY Size, Size, Size, Size, Size, Size", "at most 5 fields"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(text: str, words: str) -> None:
    with pytest.raises(BadQuery) as caught:
        parse_query(text, TYPES)
    assert words in str(caught.value)


def test_too_much_of_it_is_refused() -> None:
    with pytest.raises(BadQuery, match=f"at most {MAX_TESTS} conditions"):
        parse_query(" OR ".join(["Size = 1"] * (MAX_TESTS + 1)), TYPES)
    with pytest.raises(BadQuery, match=f"at most {MAX_VALUES:,} values"):
        parse_query(f"Size IN ({', '.join(['1'] * (MAX_VALUES + 1))})", TYPES)


def test_every_order_ends_with_the_id_so_that_it_is_total() -> None:
    assert parse_query("", {}) == Query()
    assert [key.field.name for key in parse_query("ORDER BY Size DESC", TYPES).order] == ["Size", "JobId"]
    assert parse_query("ORDER BY StartTime", {}).by_start
    assert not parse_query("ORDER BY CloseTime", {}).by_start


def test_the_fingerprint_tells_searches_apart() -> None:
    texts = ["", "Size = 1", "Size = 2", "Size = 1.0 ORDER BY Size", "Asset = '1'", "ORDER BY StartTime"]
    prints = {parse_query(text, TYPES).fingerprint for text in texts}
    prints |= {parse_query("", TYPES).restricted(client="a").fingerprint}
    assert len(prints) == len(texts) + 1
    assert parse_query(" Size=1 ", TYPES).fingerprint == parse_query("(Size = 1)", TYPES).fingerprint
