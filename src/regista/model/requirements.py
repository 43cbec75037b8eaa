"""Requirements: what a task may ask of a worker, in our words and in those of before.

| key                                | asks for                                                             |
|------------------------------------|----------------------------------------------------------------------|
| `cpu_cores` `ram_gb` `disk_gb`     | at least so much                                                     |
| `gpu`                              | a count, or {"count", "model" (part of its name), "vram_gb"}         |
| `models` `software`                | names, or {name: version or "any"}                                   |
| `zone`                             | a zone, or a list of them                                            |
| `constraints`                      | [{"key", "op": Eq Ne Gt Lt In NotIn, "value"}] on labels, properties |
| `tolerations`                      | taints that it puts up with; "*" is all                              |
| `affinity`                         | {label: value}, all of them                                          |
| `min_reputation`                   | 0 to 1                                                               |
| `gpu_info` `installed_models` `extra_requirements`     | the documents' forms of gpu, models, equal labels |
| `resources` `installed_artifacts` `installed_software` | their newer forms                                 |
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from math import inf
from typing import Any

from msgspec import Struct, field

#: How to choose among workers that fit; `dispatch/strategies.py` has a function for each.
STRATEGIES = ("default", "round_robin", "least_connections", "cheapest", "best_value")
OPERATORS = ("Eq", "Ne", "Gt", "Lt", "In", "NotIn")
#: Any version will do.
ANY = "any"


class Constraint(Struct, frozen=True, gc=False):
    """A question to one label or property of a worker."""

    key: str
    op: str
    value: Any


class Device(Struct, frozen=True, gc=False):
    """A device, or several alike, that a worker must have."""

    type: str = "gpu"
    count: int = 1
    #: Part of the model's name.
    model: str = ""
    #: Numbers: at least so much. Anything else: equal.
    properties: dict[str, Any] = field(default_factory=dict)


class Requirements(Struct, kw_only=True, gc=False):
    """All that was asked for, whichever words were used. Filled by `read_requirements` only."""

    #: cpu_cores, ram_gb, disk_gb.
    at_least: dict[str, float] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    models: dict[str, str] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    zones: tuple[str, ...] = ()
    constraints: list[Constraint] = field(default_factory=list)
    tolerations: tuple[str, ...] = ()
    #: Labels that must be equal; a list means any of its values.
    affinity: dict[str, Any] = field(default_factory=dict)
    #: Properties: numbers at least, lists must share a value, anything else equal.
    properties: dict[str, Any] = field(default_factory=dict)
    min_reputation: float = 0.0


class _Wrong(Exception):
    """Says what was expected."""


def check_requirements(asked: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with these requirements, a sentence each. Empty when all can be read."""
    return read_requirements(asked)[1]


def read_requirements(asked: Mapping[str, Any]) -> tuple[Requirements, list[str]]:
    """What can be read, and a sentence for each key that cannot."""
    wanted, problems = Requirements(), []
    for key, value in asked.items():
        read = _READERS.get(key)
        if read is None:
            close = get_close_matches(str(key), _READERS, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_READERS)}"
            problems.append(f"{key!r} is no known requirement; {hint}")
            continue
        try:
            read(wanted, key, value)
        except _Wrong as expected:
            problems.append(f"{key!r}: expected {expected}, got {value!r:.80}")
    return wanted, problems


# -- one reader per key --------------------------------------------------------------------------


def _amount(wanted: Requirements, key: str, value: object) -> None:
    wanted.at_least[key] = _number(value)


def _gpu(wanted: Requirements, key: str, value: object) -> None:
    if isinstance(value, dict):
        rest = _known(value, "count", "model", "vram_gb")
        count = _count(rest.pop("count", 1))
        model = _text(rest.pop("model", ""))
        properties = {name: _number(least) for name, least in rest.items()}
        wanted.devices.append(Device("gpu", count, model, properties))
    else:
        wanted.devices.append(Device("gpu", _count(value)))


def _gpu_info(wanted: Requirements, key: str, value: object) -> None:
    _gpu(wanted, key, _known(_mapping(value), "model", "vram_gb"))


def _models(wanted: Requirements, key: str, value: object) -> None:
    wanted.models.update(_versions(value))


def _software(wanted: Requirements, key: str, value: object) -> None:
    wanted.software.update(_versions(value))


def _zone(wanted: Requirements, key: str, value: object) -> None:
    wanted.zones = (_text(value),) if isinstance(value, str) else tuple(_texts(value))


def _constraints(wanted: Requirements, key: str, value: object) -> None:
    for one in _list(value):
        parts = _known(_mapping(one), "key", "op", "value")
        if not {"key", "op"} <= parts.keys() or parts["op"] not in OPERATORS:
            raise _Wrong(f'a list of {{"key", "op", "value"}} with op one of {", ".join(OPERATORS)}')
        if parts["op"] in ("Gt", "Lt"):
            _number(parts.get("value"))
        if parts["op"] in ("In", "NotIn"):
            _list(parts.get("value"))
        wanted.constraints.append(Constraint(_text(parts["key"]), parts["op"], parts.get("value")))


def _tolerations(wanted: Requirements, key: str, value: object) -> None:
    wanted.tolerations = tuple(_texts(value))


def _affinity(wanted: Requirements, key: str, value: object) -> None:
    wanted.affinity.update(_mapping(value))


def _min_reputation(wanted: Requirements, key: str, value: object) -> None:
    if _number(value) > 1:
        raise _Wrong("a number from 0 to 1")
    wanted.min_reputation = _number(value)


def _extra(wanted: Requirements, key: str, value: object) -> None:
    wanted.constraints += [Constraint(name, "Eq", one) for name, one in _mapping(value).items()]


def _resources(wanted: Requirements, key: str, value: object) -> None:
    parts = _known(_mapping(value), "devices", "properties")
    for one in _list(parts.get("devices") or []):
        device = _known(_mapping(one), "type", "model", "id", "properties", "count")
        properties = dict(_mapping(device.get("properties") or {}))
        if device.get("id") is not None:
            properties["id"] = device["id"]
        kind, model = _text(device.get("type") or "gpu"), _text(device.get("model") or "")
        wanted.devices.append(Device(kind, _count(device.get("count", 1)), model, properties))
    wanted.properties.update(_mapping(parts.get("properties") or {}))


_READERS: dict[str, Callable[[Requirements, str, object], None]] = {
    **dict.fromkeys(("cpu_cores", "ram_gb", "disk_gb"), _amount),
    "gpu": _gpu,
    **dict.fromkeys(("models", "installed_models", "installed_artifacts"), _models),
    **dict.fromkeys(("software", "installed_software"), _software),
    "zone": _zone,
    "constraints": _constraints,
    "tolerations": _tolerations,
    "affinity": _affinity,
    "min_reputation": _min_reputation,
    "gpu_info": _gpu_info,
    "extra_requirements": _extra,
    "resources": _resources,
}


# -- shapes --------------------------------------------------------------------------------------


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf:
        return value
    raise _Wrong("a number >= 0")


def _count(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise _Wrong("a whole number >= 0")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise _Wrong("a str")


def _list(value: object) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    raise _Wrong("a list")


def _texts(value: object) -> list[str]:
    return [_text(one) for one in _list(value)]


def _mapping(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise _Wrong("a dict")


def _known(value: dict[str, Any], *names: str) -> dict[str, Any]:
    """A copy, if it has no other keys than these."""
    if not value.keys() <= set(names):
        raise _Wrong(f"a dict of {', '.join(names)}")
    return dict(value)


def _versions(value: object) -> dict[str, str]:
    """Name → version, from a list of names, of {"name", "version"}, or from a dict."""
    if isinstance(value, dict):
        return {name: _text(ANY if version is None else version) for name, version in value.items()}
    named: dict[str, str] = {}
    for one in _list(value):
        if isinstance(one, str):
            named[one] = ANY
        else:
            parts = _mapping(one)
            if "name" not in parts:
                raise _Wrong('names, or {"name", "version"}')
            version = parts.get("version")
            named[_text(parts["name"])] = _text(ANY if version is None else version)
    return named
