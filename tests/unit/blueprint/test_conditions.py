"""Conditions: the grammar of `.when(...)`."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regista.blueprint.conditions import FIELDS, MAX_DEPTH, MAX_LENGTH, Condition
from regista.blueprint.context import JobContext
from regista.blueprint.datastore import DataStores
from regista.clock import SystemClock
from regista.errors import ConditionError
from regista.model import ClientConfig, Job


def context(initial_data: dict[str, Any] | None = None, **history: Any) -> JobContext:
    now = SystemClock().now()
    job = Job(
        id="j1",
        blueprint="b",
        version="v",
        state="start",
        created_at=now,
        updated_at=now,
        input=initial_data or {},
        data=history,
    )
    client = ClientConfig(plan="pro", params={"gpu": True})
    return JobContext(job, job.data, client, DataStores())


def holds(text: str, initial_data: dict[str, Any] | None = None, **history: Any) -> bool:
    return Condition.parse(text).holds(context(initial_data, **history))


@pytest.mark.parametrize(
    ("text", "data", "expected"),
    [
        ("context.initial_data.kind == 'video'", {"kind": "video"}, True),
        ("context.initial_data.kind == 'video'", {"kind": "audio"}, False),
        ("context.initial_data['kind'] != 'video'", {"kind": "audio"}, True),
        ("context.initial_data.size > 10", {"size": 11}, True),
        ("context.initial_data.size >= 11", {"size": 11}, True),
        ("context.initial_data.size < -1.5", {"size": -2}, True),
        ("context.initial_data.size <= +1", {"size": 2}, False),
        ("0 < context.initial_data.size <= 10", {"size": 10}, True),
        ("0 < context.initial_data.size <= 10", {"size": 11}, False),
        ("context.initial_data.kind in ['video', 'audio']", {"kind": "audio"}, True),
        ("context.initial_data.kind in ('video',)", {"kind": "audio"}, False),
        ("context.initial_data.kind not in {'video'}", {"kind": "audio"}, True),
        ("context.initial_data.kind in {'video': 1}", {"kind": "video"}, True),
        ("'x' in context.initial_data.tags", {"tags": ["x"]}, True),
        ("'x' in context.initial_data", {"x": 1}, True),
        ("context.initial_data.a == context.initial_data.b", {"a": 1, "b": 1}, True),
        ("context.initial_data.a is None", {"a": None}, True),
        ("context.initial_data.a is not None", {"a": 0}, True),
        ("context.initial_data.flag", {"flag": True}, True),
        ("context.initial_data.flag", {"flag": 0}, False),
        ("not context.initial_data.flag", {"flag": False}, True),
        ("context.initial_data.a == 1 and context.initial_data.b == 2", {"a": 1, "b": 2}, True),
        ("context.initial_data.a == 1 and context.initial_data.b == 2", {"a": 1, "b": 3}, False),
        ("context.initial_data.a == 1 or context.initial_data.b == 2", {"a": 0, "b": 2}, True),
        (
            "context.initial_data.deep.list[-1]['x'].y == [1, 2]",
            {"deep": {"list": [{"x": {"y": [1, 2]}}]}},
            True,
        ),
        ("context.initial_data.items == 3", {"items": 3}, True),
        ("True", {}, True),
        ("  context.initial_data.a == 1  ", {"a": 1}, True),
    ],
)
def test_the_grammar_means_what_python_means(text: str, data: dict[str, Any], expected: bool) -> None:
    assert holds(text, data) is expected


def test_job_client_and_history_can_be_read() -> None:
    assert holds("context.client.plan == 'pro' and context.client.params.gpu")
    assert holds("context.state_history.tries >= 2", tries=2)
    assert holds("context.attempt == 1 and context.current_state == 'start' and context.job_id == 'j1'")
    assert holds("context.parent_id is None")


def test_every_field_that_can_be_named_exists_on_the_context() -> None:
    assert all(hasattr(JobContext, field) for field in FIELDS)


@pytest.mark.parametrize(
    "text",
    [
        "context.initial_data.missing == 1",
        "context.initial_data.missing != 1",
        "context.initial_data.missing is None",
        "context.initial_data.missing.deeper",
        "context.initial_data.list[5] == 1",
        "context.initial_data.text.upper == 1",
        "context.initial_data.number.real == 1",
        "0 < context.initial_data.missing < 5",
        "context.aggregation_results == 1",
        "context.client.missing == 1",
        "context.initial_data[[1]] == 1",
    ],
)
def test_a_missing_field_makes_its_comparison_false_and_not_over_it_true(text: str) -> None:
    data = {"list": [], "text": "a", "number": 1}
    assert holds(text, data) is False
    assert holds(f"not ({text})", data) is True
    assert holds(f"{text} or context.initial_data.number == 1", data) is True


@pytest.mark.parametrize(
    "text", ["'a' < 1", "context.initial_data.a < 1", "1 in 2", "context.initial_data in {1}"]
)
def test_what_cannot_be_compared_is_false(text: str) -> None:
    assert holds(text, {"a": "text"}) is False


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("__import__('os')", "a call at column 1"),
        ("context.initial_data.get('a')", "a call"),
        ("len(context.initial_data) > 1", "a call"),
        ("context.__class__", "the private name '__class__'"),
        ("context.initial_data._x == 1", "the private name '_x'"),
        ("context == 1", "`context` without a field"),
        ("other.x == 1", "the name 'other' at column 1"),
        ("context.initial_data.a == foo", "the name 'foo' at column 27"),
        ("context.inital_data.a == 1", "did you mean 'initial_data'"),
        ("context.actions", "context.actions"),
        ("context.data_stores.x", "context.data_stores"),
        ("context.initial_data.a + 1 == 2", "BinOp"),
        ("context.initial_data.a == 1 if True else 2", "IfExp"),
        ("[x for x in context.initial_data]", "ListComp"),
        ("(lambda: 1)", "Lambda"),
        ("context.initial_data.a is 1", "`is` with something other than None"),
        ("context.initial_data[context.job_id]", "a lookup where a literal belongs"),
        ("context.initial_data[1:2]", "Slice"),
        ("(context.initial_data.a and 1) == 1", "a condition where a value belongs"),
        ("context.initial_data.a == b'x'", "a bytes literal"),
        ("context.initial_data.a == ...", "a ellipsis literal"),
        ("context.initial_data.a in {[1]}", "an unhashable"),
        ("context.initial_data.a == -'x'", "a sign"),
        ("context.initial_data.a in {**{}}", "`**`"),
        ("f'{context.job_id}' == 'x'", "JoinedStr"),
        ("(x := 1)", "NamedExpr"),
        ("context.initial_data.ä == y", "the name 'y' at column 27"),
    ],
)
def test_anything_else_is_refused_with_what_and_where(text: str, found: str) -> None:
    with pytest.raises(ConditionError, match="condition") as caught:
        Condition.parse(text)
    assert found in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "   ", "context.a ==", "a b", "x" * (MAX_LENGTH + 1), "\0", "\ud800", "((" * 500]
)
def test_text_that_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ConditionError):
        Condition.parse(text)


def test_a_condition_is_text() -> None:
    with pytest.raises(ConditionError, match="expected a str, got 5"):
        Condition.parse(5)  # type: ignore[arg-type]


def test_too_deep_a_nesting_is_refused() -> None:
    Condition.parse("not " * MAX_DEPTH + "True")
    with pytest.raises(ConditionError, match="too deep"):
        Condition.parse("not " * (MAX_DEPTH + 1) + "True")


def test_an_error_in_a_later_line_names_the_line() -> None:
    with pytest.raises(ConditionError, match="line 2, column 6"):
        Condition.parse("(context.initial_data.a == 1\n and foo)")


def test_the_text_is_kept_without_its_surrounding_space() -> None:
    assert Condition.parse(" context.attempt == 1 ").text == "context.attempt == 1"


fragments = st.sampled_from(
    [
        *(
            "context",
            ".initial_data",
            ".a",
            ".b",
            "['a']",
            "[0]",
            " == ",
            " != ",
            " < ",
            " in ",
            " not in ",
            " is None",
        ),
        *(
            " and ",
            " or ",
            "not ",
            "(",
            ")",
            "[",
            "]",
            "{",
            "}",
            ",",
            "1",
            "-1",
            "'x'",
            "None",
            "True",
            ":",
            ".__class__",
        ),
        *(
            "context.initial_data.a",
            "context.state_history.b",
            "context.client.plan",
            "f()",
            "\n",
            "#",
            "\\",
            "lambda",
        ),
    ]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=8,
)
data = st.dictionaries(st.sampled_from("ab"), json_values, max_size=2)


@given(st.text() | st.lists(fragments, max_size=14).map("".join), data)
@example("'\\d' == 1", {})
@example("1and 1", {})
def test_random_text_is_refused_or_can_be_asked(text: str, initial_data: dict[str, Any]) -> None:
    try:
        condition = Condition.parse(text)
    except ConditionError:
        return
    assert condition.holds(context(initial_data)) in (True, False)
    assert condition.holds(SimpleNamespace()) in (True, False)


lookups = st.sampled_from(
    ["context.initial_data.a", "context.initial_data['b']", "context.state_history.a[0]"]
)
values = lookups | st.sampled_from(
    ["1", "-2.5", "'a'", "None", "True", "[1, 'a']", "{1, 2}", "{'a': 1}", "()"]
)
comparisons = st.tuples(
    values, st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]), values
).map(" ".join)
conditions = st.recursive(
    comparisons | lookups | lookups.map("{} is not None".format),
    lambda inner: (
        inner.map("not ({})".format)
        | st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda parts: "({} {} {})".format(*parts)
        )
    ),
    max_leaves=6,
)


@given(conditions, data)
def test_every_sentence_of_the_grammar_parses_and_never_raises(
    text: str, initial_data: dict[str, Any]
) -> None:
    assert holds(text, initial_data) is not holds(f"not ({text})", initial_data)


@pytest.mark.parametrize("step", [".a", "['a']"])
def test_a_lookup_that_goes_too_deep_is_refused(step: str) -> None:
    Condition.parse("context.initial_data" + step * MAX_DEPTH)
    with pytest.raises(ConditionError, match="too deep"):
        Condition.parse("context.initial_data" + step * (MAX_DEPTH + 1))
