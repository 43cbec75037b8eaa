from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.api.bodies import parse
from regista.api.problems import Problem
from regista.schemas.jobs import JobRequest


def test_body_without_a_bottom_is_refused() -> None:
    with pytest.raises(Problem) as refused:
        parse(b'{"blueprint": "b", "input": {"x": ' + b"[" * 200_000, JobRequest)
    assert refused.value.code == "malformed_json"


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_record_or_a_problem(body: bytes) -> None:
    try:
        parse(body, JobRequest)
    except Problem as problem:
        code = problem.code
    else:
        code = "malformed_json"
    assert code in ("malformed_json", "invalid_body", "unknown_member")


_json: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), _json, max_size=4))
def test_input_arrives_as_it_was_sent(data: dict[str, Any]) -> None:
    assert parse(msgspec.json.encode({"blueprint": "b", "input": data}), JobRequest).input == data


@pytest.mark.parametrize(
    ("member", "hint"),
    [
        ("inptu", "did you mean input?"),
        ("zzz", "known are blueprint, input"),
        ("concurrency_key", "not supported"),
    ],
)
def test_an_unknown_member_is_named_with_what_may_have_been_meant(member: str, hint: str) -> None:
    with pytest.raises(Problem) as refused:
        parse(msgspec.json.encode({"blueprint": "b", member: 1}), JobRequest)

    assert refused.value.code == "unknown_member"
    assert hint in refused.value.detail
    assert refused.value.more == {"member": member}
