from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.api.bodies import MAX_DEPTH, parse
from regista.api.problems import Problem
from regista.schemas.jobs import JobRequest


def nested(levels: int, sibling: str = "") -> bytes:
    """An input of that many levels."""
    inner = "".join(f'{{{sibling}"x":' for _ in range(levels - 1)) + "{}" + "}" * (levels - 1)
    return f'{{"blueprint": "b", "input": {inner}}}'.encode()


def test_data_may_be_nested_as_deep_as_is_said_and_no_deeper() -> None:
    assert parse(nested(MAX_DEPTH), JobRequest).blueprint == "b"
    for sibling in ("", '"y": [], '):
        with pytest.raises(Problem, match="nested at most 100"):
            parse(nested(MAX_DEPTH + 5, sibling), JobRequest)


def test_many_shallow_things_are_not_deep() -> None:
    body = msgspec.json.encode({"blueprint": "b", "input": {"x": [[{}]] * 1000}})

    assert len(parse(body, JobRequest).input["x"]) == 1000


def test_brackets_in_text_are_no_nesting() -> None:
    body = msgspec.json.encode({"blueprint": "b", "input": {"x": "[{" * 1000}})

    assert parse(body, JobRequest).input["x"] == "[{" * 1000


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


def test_brackets_inside_strings_hide_no_depth() -> None:
    deep = '["]",' * 200 + "1" + "]" * 200
    with pytest.raises(Problem, match="nested at most 100"):
        parse(f'{{"blueprint": "b", "input": {{"x": {deep}}}}}'.encode(), JobRequest)
    # Neither do they make anything deep that is not, whatever is escaped beside them.
    flat = r'"[[[[[\\", "\"{{{{{", ' * 100
    assert (
        len(parse(f'{{"blueprint": "b", "input": {{"x": [{flat} 1]}}}}'.encode(), JobRequest).input["x"])
        == 201
    )
