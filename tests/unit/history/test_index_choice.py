from regista.history.index_choice import COUNTED, IndexCondition, choose_index, index_conditions
from regista.history.query import parse_query
from regista.model.attributes import declared_types

TYPES = declared_types(
    {"Asset": "Keyword", "Size": "Int", "Name": "Text", "Hd": "Bool", "Tags": "KeywordList"}
)


def conditions(text: str) -> list[IndexCondition]:
    return index_conditions(parse_query(text, TYPES))


def test_only_what_must_hold_can_lead() -> None:
    assert len(conditions("Asset = 'a' AND (Size = 1 AND Tags = 'x')")) == 3
    assert conditions("Asset = 'a' OR Size = 1") == []
    assert conditions("NOT Asset = 'a' AND Asset != 'b'") == []
    assert conditions("Name = 'a' AND Hd = true AND StartTime > '2026-01-01'") == []


def test_the_many_that_finished_do_not_lead_and_the_others_do() -> None:
    assert conditions("ExecutionStatus = 'Completed'") == []
    assert [
        condition.column for condition in conditions("ExecutionStatus = 'Running' AND BlueprintName = 'b'")
    ] == [
        "status",
        "blueprint",
    ]
    assert conditions("BlueprintName > 'b'") == []


def test_a_range_leads_between_its_ends_and_a_value_to_itself() -> None:
    (exact,) = conditions("Asset = 'a'")
    (prefix,) = conditions("Asset STARTS_WITH 'a'")
    (above,) = conditions("Size > 5")
    (several,) = conditions("Size IN (7, 3, 5)")
    assert exact.exact
    assert not any(condition.exact for condition in (prefix, above, several))
    for condition in (prefix, above, several):
        assert condition.low < condition.high


def test_the_fewest_lead_and_beyond_the_bound_what_keeps_the_order() -> None:
    some = conditions("Asset = 'a' AND ClientName = 'c' AND Size > 5 AND ExecutionStatus = 'Failed'")
    assert choose_index(some, [10, 3, 500, COUNTED]) is some[1]
    assert choose_index(some, [COUNTED, COUNTED, 500, COUNTED]) is some[2]
    assert choose_index(some, [COUNTED] * 4) is some[3]
    assert choose_index(some[:3], [COUNTED] * 3) is some[0]
    assert choose_index(some[2:3], [COUNTED]) is None
