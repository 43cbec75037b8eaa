"""How task functions are called, and what wrong params are told."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from regista import InvalidInputError
from regista.model import Task
from regista.sdk.params import build_call_plan
from regista.worker import TaskContext, Worker

CONTEXT = TaskContext(Task(id="j_1_0", job_id="j", type="work"), lambda *_: None)


class TaskOrder(msgspec.Struct):
    width: int
    path: str = "here"


@dataclass
class Size:
    width: int
    height: int = 1


class Entry(TypedDict):
    width: int


def call(func: Callable[..., Any], params: dict[str, Any]) -> Any:
    return build_call_plan("work", func).call(params, CONTEXT)


# -- params as one object ----------------------------------------------------------------------------


def test_a_function_without_annotations_gets_the_dict_itself() -> None:
    params = {"n": 1}

    assert call(lambda p: p, params) is params
    assert call(lambda p, c: (p, c), params) == (params, CONTEXT)


def test_a_struct_a_dataclass_and_a_typed_dict_are_made_of_the_params() -> None:
    def struct(order: TaskOrder) -> Any:
        return order

    def data(size: Size, context: TaskContext) -> Any:
        return size, context

    def typed(entry: Entry) -> Any:
        return entry

    assert call(struct, {"width": 3}) == TaskOrder(3, "here")
    assert call(data, {"width": 3}) == (Size(3, 1), CONTEXT)
    assert call(typed, {"width": 3, "more": 1}) == {"width": 3}


def test_a_record_called_params_is_a_record() -> None:
    def work(params: TaskOrder) -> Any:
        return params

    assert call(work, {"width": 3}) == TaskOrder(3)


@pytest.mark.parametrize(
    ("params", "named"),
    [({}, "width"), ({"width": "3"}, "width"), ({"width": 3, "path": 5}, "path")],
)
def test_wrong_params_are_invalid_input_that_names_the_field(params: dict[str, Any], named: str) -> None:
    def work(order: TaskOrder) -> Any:
        raise AssertionError("never called")

    with pytest.raises(InvalidInputError, match=rf"'work'.*{named}"):
        call(work, params)


def test_the_error_of_a_record_s_own_check_is_invalid_input_too() -> None:
    @dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("n must be even")

    def work(params: Even) -> int:
        return params.n

    assert call(work, {"n": 2}) == 2
    with pytest.raises(InvalidInputError, match="n must be even"):
        call(work, {"n": 3})


def test_a_value_error_of_the_function_itself_is_not_invalid_input() -> None:
    def work(order: TaskOrder) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        call(work, {"width": 1})


# -- params by name ----------------------------------------------------------------------------------


def test_params_come_by_name_when_the_first_annotation_fits_no_object() -> None:
    def resize(width: int, path: str = "here") -> Any:
        return width, path

    assert call(resize, {"width": 3}) == (3, "here")
    assert call(resize, {"width": 3, "path": "there", "unknown": True}) == (3, "there")


def test_by_name_a_context_may_stand_anywhere() -> None:
    def resize(width: int, *, context: TaskContext, tags: list[str] = []) -> Any:  # noqa: B006
        return width, context, tags

    assert call(resize, {"width": 3}) == (3, CONTEXT, [])


def test_by_name_a_missing_and_a_wrong_one_are_named() -> None:
    def resize(width: int, path: str) -> None:
        raise AssertionError("never called")

    with pytest.raises(InvalidInputError, match="path"):
        call(resize, {"width": 3})
    with pytest.raises(InvalidInputError, match="width"):
        call(resize, {"width": "x", "path": "p"})


def test_by_name_nothing_may_be_positional_only() -> None:
    def resize(width: int, /) -> None: ...

    with pytest.raises(ValueError, match="by name"):
        build_call_plan("work", resize)


# -- odd shapes --------------------------------------------------------------------------------------


def test_a_context_is_found_by_its_annotation() -> None:
    def only(context: TaskContext) -> Any:
        return context

    def turned(context: TaskContext, order: TaskOrder) -> Any:
        return context, order

    def plain_turned(context: TaskContext, params: dict[str, Any]) -> Any:
        return context, params

    def nothing() -> str:
        return "nothing"

    assert call(only, {"n": 1}) is CONTEXT
    assert call(turned, {"width": 1}) == (CONTEXT, TaskOrder(1))
    assert call(plain_turned, {"n": 1}) == (CONTEXT, {"n": 1})
    assert call(nothing, {}) == "nothing"


def test_methods_partials_and_callable_objects_keep_their_annotations() -> None:
    class Tools:
        def method(self, order: TaskOrder) -> Any:
            return order

        def __call__(self, order: TaskOrder) -> Any:
            return order

    def prefixed(prefix: str, order: TaskOrder) -> Any:
        return prefix, order

    assert call(Tools().method, {"width": 1}) == TaskOrder(1)
    assert call(Tools(), {"width": 1}) == TaskOrder(1)
    assert call(functools.partial(prefixed, "p"), {"width": 1}) == ("p", TaskOrder(1))


def test_annotations_that_are_text_are_resolved_and_those_that_cannot_be_are_no_obstacle() -> None:
    def work(order: "TaskOrder", context: "NowhereDefined") -> Any:  # type: ignore[name-defined]  # noqa: F821
        return order, context

    assert call(work, {"width": 1}) == (TaskOrder(1), CONTEXT)


def test_a_function_that_nobody_could_call_is_refused_where_it_is_registered() -> None:
    def three(params: Any, context: Any, more: Any) -> None: ...
    def named(params: Any, *, must: int) -> None: ...
    def odd(params: complex | Callable[[], None]) -> None: ...

    for func in (three, named):
        with pytest.raises(ValueError, match="expected a function of"):
            build_call_plan("work", func)
    with pytest.raises(ValueError, match="annotated as dict"):
        build_call_plan("work", odd)


# -- schemas -----------------------------------------------------------------------------------------


def test_the_schema_of_the_params_is_known_and_a_plain_dict_has_none() -> None:
    worker = Worker()

    @worker.task("by-record")
    def by_record(order: TaskOrder) -> None: ...

    @worker.task("by-name")
    def by_name(width: int, path: str = "here") -> None: ...

    @worker.task("plain")
    def plain(params: dict[str, Any]) -> None: ...

    assert set(worker.schemas) == {"by-record", "by-name"}
    assert "width" in str(worker.schemas["by-record"])
    (by_name_schema,) = worker.schemas["by-name"]["$defs"].values()
    assert by_name_schema["required"] == ["width"]


def test_a_pydantic_model_is_checked_by_itself_and_its_schema_sent() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Picture", width=(int, ...), path=(str, "here"))

    def work(picture: Any) -> Any:
        return picture.width, picture.path

    work.__annotations__["picture"] = model
    calling = build_call_plan("work", work)

    assert calling.call({"width": 3}, CONTEXT) == (3, "here")
    assert calling.schema is not None
    assert "width" in calling.schema["properties"]
    with pytest.raises(InvalidInputError, match="width"):
        calling.call({"width": "x"}, CONTEXT)
