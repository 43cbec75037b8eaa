"""Rates: how often each kind of request may come, as settings and `clients.toml` write it.

`100/s` is a hundred each second, all of them at once if need be; `6000/10s` the same with room for more at once;
`off` is as often as one likes.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

import msgspec

from ..errors import ConfigError
from ..model import Rate
from .settings import Kind

#: What a rate may look like.
EXPECTED = "a rate like 100/s, 6000/m or 50/10s, or off"
_RATE = re.compile(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,4})?(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Context(StrEnum):
    """What is counted, each on its own."""

    #: By worker.
    HEARTBEAT = "heartbeat"
    EMPTY_POLL = "empty_poll"
    RESULT = "result"
    EVENT = "event"
    #: By client.
    SUBMIT = "submit"
    READ = "read"
    #: By address.
    PUBLIC = "public"
    AUTH = "auth"


#: What `clients.toml` may set for one client.
OF_CLIENTS = (Context.SUBMIT, Context.READ)
#: No healthy worker or client comes near these; what runs in circles does, within seconds.
DEFAULTS: Mapping[str, str] = {
    Context.HEARTBEAT: "1200/m",
    Context.EMPTY_POLL: "600/m",
    Context.RESULT: "600000/m",
    Context.EVENT: "60000/m",
    Context.SUBMIT: "600000/m",
    Context.READ: "300000/m",
    Context.PUBLIC: "6000/m",
    Context.AUTH: "120/m",
}


def parse_rate(text: object) -> Rate | None:
    """The rate that a text means; None is no limit. Raises ValueError for anything else."""
    if text == "off":
        return None
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"expected {EXPECTED}, got {text!r}")
    limit, times, unit = found.groups()
    return Rate(int(limit), float(int(times or 1) * _SECONDS[unit]))


def rates_of(given: Mapping[str, str]) -> dict[str, Rate | None]:
    """The rate of each context: what is given, and the default elsewhere."""
    return {context: parse_rate(text) for context, text in {**DEFAULTS, **given}.items()}


def _accepts(value: Any) -> bool:
    """A member that is wrong is refused by its own name: in a long value nobody finds it otherwise."""
    if not isinstance(value, Mapping):
        return False
    for context, text in value.items():
        if context not in DEFAULTS:
            near = get_close_matches(str(context), DEFAULTS, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ConfigError("REGISTA_RATE_LIMITS", f"one of {', '.join(DEFAULTS)}{hint}", context)
        try:
            parse_rate(text)
        except ValueError:
            raise ConfigError(f"REGISTA_RATE_LIMITS, {context}", EXPECTED, text) from None
    return True


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


#: JSON like `{"submit": "100/s", "public": "off"}`.
RATES = Kind(
    f'JSON of contexts ({", ".join(DEFAULTS)}) and rates, like {{"submit": "100/s", "public": "off"}}',
    _accepts,
    _read,
)
