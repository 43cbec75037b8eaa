"""The token of a page leads on in its own list, and nowhere else."""

from typing import Any

import pytest

from regista.api.problems import Problem
from regista.api.search import position_in, token_for
from regista.history.query import Place, Query, parse_query
from regista.model.attributes import AttributeType


class Asked:
    """A request, as far as `position_in` looks at one."""

    def __init__(self, token: str) -> None:
        self.query = {"next": token}


def test_a_token_leads_on_in_its_own_list_only() -> None:
    first = parse_query("State = 'a' ORDER BY CloseTime DESC", {})
    second = parse_query("State = 'b' ORDER BY CloseTime DESC", {})
    place: Place = (None, "job-1")
    token = token_for(first, place)
    assert position_in(Asked(token), first) == place  # type: ignore[arg-type]
    for query in (second, first.restricted(client="ada"), Query()):
        with pytest.raises(Problem, match="of this very search"):
            position_in(Asked(token), query)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[1], ["x", "y"], [1 << 62, "a"], [None, None], [None, 5], [1, "a\0"]])
def test_a_token_that_somebody_made_up_is_refused(values: list[Any]) -> None:
    query = parse_query("ORDER BY CloseTime", {})
    with pytest.raises(Problem, match="expected"):
        position_in(Asked(token_for(query, tuple(values))), query)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Int", (1 << 64) - 1),
        ("Int", 1 << 63),
        ("Int", True),
        ("Double", float("nan")),
        ("Double", float("inf")),
        ("Double", "1"),
        ("Bool", 1),
        ("Datetime", 5),
        ("ExecutionDuration", (1 << 64) - 1),
        ("ExecutionDuration", True),
        ("StartTime", True),
        ("StartTime", (1 << 63) - 1),
        ("StartTime", -(1 << 63)),
    ],
)
def test_a_number_that_no_history_can_compare_with_is_refused(field: str, value: Any) -> None:
    query = parse_query(f"ORDER BY {field}", {kind.value: kind for kind in AttributeType})
    with pytest.raises(Problem, match="expected") as refused:
        position_in(Asked(token_for(query, (value, "job-1"))), query)  # type: ignore[arg-type]
    assert refused.value.status == 400
