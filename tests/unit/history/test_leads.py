from regista.history.leads import COUNTED, IndexCondition, best, leads_of
from regista.history.query import parse_query
from regista.model.attributes import declared_types

TYPES = declared_types(
    {"Asset": "Keyword", "Size": "Int", "Name": "Text", "Hd": "Bool", "Tags": "KeywordList"}
)


def leads(text: str) -> list[IndexCondition]:
    return leads_of(parse_query(text, TYPES))


def test_only_what_must_hold_can_lead() -> None:
    assert len(leads("Asset = 'a' AND (Size = 1 AND Tags = 'x')")) == 3
    assert leads("Asset = 'a' OR Size = 1") == []
    assert leads("NOT Asset = 'a' AND Asset != 'b'") == []
    assert leads("Name = 'a' AND Hd = true AND StartTime > '2026-01-01'") == []


def test_the_many_that_finished_do_not_lead_and_the_others_do() -> None:
    assert leads("ExecutionStatus = 'Completed'") == []
    assert [lead.column for lead in leads("ExecutionStatus = 'Running' AND BlueprintName = 'b'")] == [
        "status",
        "blueprint",
    ]
    assert leads("BlueprintName > 'b'") == []


def test_a_range_leads_between_its_ends_and_a_value_to_itself() -> None:
    (exact,) = leads("Asset = 'a'")
    (prefix,) = leads("Asset STARTS_WITH 'a'")
    (above,) = leads("Size > 5")
    (several,) = leads("Size IN (7, 3, 5)")
    assert exact.exact
    assert not any(lead.exact for lead in (prefix, above, several))
    for lead in (prefix, above, several):
        assert lead.low < lead.high


def test_the_fewest_lead_and_beyond_the_bound_what_keeps_the_order() -> None:
    some = leads("Asset = 'a' AND ClientName = 'c' AND Size > 5 AND ExecutionStatus = 'Failed'")
    assert best(some, [10, 3, 500, COUNTED]) is some[1]
    assert best(some, [COUNTED, COUNTED, 500, COUNTED]) is some[2]
    assert best(some, [COUNTED] * 4) is some[3]
    assert best(some[:3], [COUNTED] * 3) is some[0]
    assert best(some[2:3], [COUNTED]) is None
