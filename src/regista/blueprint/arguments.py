"""The checks behind `actions`: an argument is valid, or the error says what was expected and what was given.

Every function takes `call` (such as "state 'start': dispatch_task") for the message alone.
"""

from datetime import datetime
from math import isfinite
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..errors import ActionError, NotSerializable
from ..model import STRATEGIES, RetryPolicy, check_requirements
from ..serialization import to_storable
from .decisions import TaskOrder
from .names import did_you_mean

T = TypeVar("T")

_decode_order = msgspec.msgpack.Decoder(tuple[str, dict[str, Any], dict[str, str]]).decode
_decode_whole = msgspec.msgpack.Decoder(TaskOrder).decode

#: A hundred years. Longer is a mistake, and the calendar ends somewhere.
MAX_SECONDS = 100 * 366 * 86_400.0

#: The names of before, and what they are called here.
_LEGACY = {
    "task_type": "type",
    "resource_requirements": "requirements",
    "timeout_seconds": "attempt_timeout",
    "dispatch_timeout_seconds": "dispatch_timeout",
    "result_timeout_seconds": "result_timeout",
}
_TASK_KEYS = frozenset(
    {
        "type",
        "params",
        "transitions",
        "priority",
        "queue",
        "dispatch_timeout",
        "result_timeout",
        "heartbeat_timeout",
        "attempt_timeout",
        "retry",
        "requirements",
        "dispatch_strategy",
        "max_cost",
    }
)


class Unstorable(ActionError):
    """A handler left something behind that no store can keep. Running it again would do the same."""

    code = "unstorable"


def wrong(call: str, name: str, expected: str, got: object) -> ActionError:
    """The error for one wrong argument."""
    return ActionError(f"{call}: {name}: expected {expected}, got {_short(got)}")


def text(call: str, name: str, value: object) -> str:
    """A non-empty str."""
    if isinstance(value, str) and value:
        # A member of a str enum becomes the plain text that is stored.
        return value if type(value) is str else str.__str__(value)
    raise wrong(call, name, "a non-empty str", value)


def mapping(call: str, name: str, value: object) -> dict[str, Any]:
    """A copy of a dict with str keys, so that reusing it for the next call is harmless; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong(call, name, "a dict", value)
    for key in value:
        if not isinstance(key, str):
            raise wrong(call, name, "a dict with str keys", value)
    return {**value}


def number(call: str, name: str, value: object) -> float:
    """A finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and _finite(value):
        return value
    raise wrong(call, name, "a finite number", value)


def seconds(call: str, name: str, value: object, *, zero: bool = False) -> float:
    """A number of seconds above zero (`zero=True`: or zero), at most a hundred years."""
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and (
            # NaN compares false, and infinity is above the limit.
            0 < value <= MAX_SECONDS or (zero and value == 0)
        )
    ):
        return value
    raise wrong(call, name, f"seconds {'>=' if zero else '>'} 0 (and at most 100 years)", value)


def leads(call: str, value: object) -> dict[str, str]:
    """A copy of `transitions`: a non-empty dict of status → state."""
    if not isinstance(value, dict) or not value:
        raise wrong(call, "transitions", "a non-empty dict of status → state", value)
    to_storable = True
    for key, target in value.items():
        if type(key) is not str or type(target) is not str:
            to_storable = False
            if not isinstance(key, str) or not isinstance(target, str):
                raise wrong(call, "transitions", "a dict of str → str", value)
    if to_storable:
        return value.copy()
    # Members of a str enum become the plain text that is stored.
    return {str.__str__(key): str.__str__(target) for key, target in value.items()}


def order(call: str, task_type: object, params: object, transitions: object) -> TaskOrder:
    """The order as a store would return it: it shares no object with the handler.

    What few ask for is added by `with_options`: a record of so many names is dear.
    """
    given = {} if params is None else params
    if isinstance(task_type, str) and isinstance(given, dict) and isinstance(transitions, dict):
        try:
            name, kept, ways = to_storable((task_type, given, transitions), _decode_order, "the task")
        except NotSerializable as problem:
            _complain(call, task_type, given, transitions)
            raise Unstorable(f"{call}: {problem}") from problem
        if name and ways:
            return TaskOrder(task_type=name, params=kept, transitions=ways)
    raise _complain(call, task_type, given, transitions)


def _complain(call: str, task_type: object, params: object, transitions: object) -> ActionError:
    """Raise what is wrong with one of them; each by itself is fine where this returns."""
    text(call, "task_type", task_type)
    mapping(call, "params", params)
    leads(call, transitions)
    return ActionError(f"{call}: expected a task type, params and transitions")


def with_options(
    call: str,
    order: TaskOrder,
    *,
    priority: object = None,
    queue: object = None,
    dispatch_timeout: object = None,
    result_timeout: object = None,
    heartbeat_timeout: object = None,
    attempt_timeout: object = None,
    retry: object = None,
    requirements: object = None,
    dispatch_strategy: object = None,
    max_cost: object = None,
) -> TaskOrder:
    """The task with the further arguments of `dispatch_task`, or of an entry of `dispatch_parallel`.

    None means "not given".
    """
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise wrong(call, "retry", "a RetryPolicy or None", retry)
    whole = replace(
        order,
        priority=None if priority is None else number(call, "priority", priority),
        queue=None if queue is None else text(call, "queue", queue),
        dispatch_timeout_s=_limit(call, "dispatch_timeout", dispatch_timeout),
        result_timeout_s=_limit(call, "result_timeout", result_timeout),
        attempt_timeout_s=_limit(call, "attempt_timeout", attempt_timeout),
        heartbeat_timeout_s=_limit(call, "heartbeat_timeout", heartbeat_timeout),
        retry=retry,
        requirements={} if requirements is None else _requirements(call, requirements),
        strategy=None if dispatch_strategy is None else _strategy(call, dispatch_strategy),
        max_cost=None if max_cost is None else _price(call, "max_cost", max_cost),
    )
    try:
        return to_storable(whole, _decode_whole, "the task")
    except NotSerializable as problem:
        raise Unstorable(f"{call}: {problem}") from problem


def order_of(call: str, task: dict[str, Any]) -> TaskOrder:
    """One task, from an entry of `dispatch_parallel`; the keys may be today's or those of before."""
    options: dict[str, Any] = {}
    for key, value in task.items():
        name = _LEGACY.get(key, key)
        if name not in _TASK_KEYS:
            known = ", ".join(sorted(_TASK_KEYS))
            hint = did_you_mean(str(key), _TASK_KEYS)
            raise ActionError(f"{call}: unknown key {key!r}{hint} (known: {known})")
        options[name] = either(call, name, options.get(name), value)
    basis = order(
        call, options.pop("type", None), options.pop("params", None), options.pop("transitions", None)
    )
    return with_options(call, basis, **options) if options else basis


def either(call: str, name: str, now: T | None, before: T | None) -> T | None:
    """The value of an argument that also has a name of before; both at once is a mistake."""
    if now is not None and before is not None:
        raise ActionError(f"{call}: {name!r} was given twice, once under its old name")
    return before if now is None else now


def search_attribute(call: str, name: object, value: object) -> Any:
    """A value that search can index: str, int, float, bool, aware datetime or list[str]."""
    if not isinstance(name, str) or not name:
        raise wrong(call, "a name", "a non-empty str", name)
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, float) and isfinite(value):
        return value
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return list(value)
    raise wrong(call, name, "a str, 64-bit int, finite float, bool, datetime with a zone or list[str]", value)


def _requirements(call: str, value: object) -> dict[str, Any]:
    """What can be matched; a typing error would otherwise wait for a worker for ever."""
    asked = mapping(call, "requirements", value)
    problems = check_requirements(asked)
    if problems:
        raise ActionError(f"{call}: requirements: {'; '.join(problems)}")
    return asked


def _strategy(call: str, value: object) -> str:
    name = text(call, "dispatch_strategy", value)
    if name not in STRATEGIES:
        hint = did_you_mean(name, STRATEGIES)
        raise ActionError(
            f"{call}: dispatch_strategy: unknown name {name!r}{hint} (known: {', '.join(STRATEGIES)})"
        )
    return name


def _limit(call: str, name: str, value: object) -> float | None:
    return None if value is None else seconds(call, name, value)


def _price(call: str, name: str, value: object) -> float:
    price = number(call, name, value)
    if price < 0:
        raise wrong(call, name, "a number >= 0", value)
    return price


def _finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an int too large for a float
        return False


def _short(got: object) -> str:
    shown = repr(got)
    return f"{type(got).__name__} {shown if len(shown) <= 80 else shown[:77] + '...'}"
