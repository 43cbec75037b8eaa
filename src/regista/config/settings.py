"""What a setting is: its two names, its kind, its sentence, and how text becomes a checked value.

A setting is declared once, as a field: `lease_s: Annotated[float, env("REGISTA_LEASE_SECONDS", kind=…, help=…)] = 30.0`.
"""

import functools
import math
import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, NamedTuple, Self, get_type_hints

import msgspec

from ..errors import ConfigError

#: Variables that begin like this are ours, so an unknown one is a typing mistake.
PREFIX = "REGISTA_"

#: A secret keys an HMAC: a short one could be guessed offline.
MIN_SECRET_LENGTH = 16

#: Every kind of process that has settings.
_KINDS_OF_PROCESS: "list[type[Settings]]" = []


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One frozen object of settings. Each field of a subclass is declared with `env`."""

    #: First field of a section of the reference page → its heading.
    SECTIONS: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _KINDS_OF_PROCESS.append(cls)

    def __post_init__(self) -> None:
        for setting in settings_of(type(self)):
            check(setting, setting.field, getattr(self, setting.field))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        # msgspec offers this to pretty printers beside `__repr__`; both must keep the secrets.
        return [(s.field, _shown(s, getattr(self, s.field))) for s in settings_of(type(self))]

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        defaults: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> Self:
        """The settings that `environ` (by default, the process's own) names; the rest keeps its default.

        A variable that is set but empty counts as not set. What is `given` (not None) wins over both;
        `defaults` takes the place of the fields' own.
        """
        environ = os.environ if environ is None else environ
        refuse_unknown(environ)
        found: dict[str, Any] = dict(defaults or {})
        for setting in settings_of(cls):
            for name in setting.names:
                if text := environ.get(name, "").strip():
                    found[setting.field] = check(setting, name, _parse(setting, text))
                    break
        return cls(**found | {name: value for name, value in given.items() if value is not None})


class Kind(NamedTuple):
    """What values a setting takes: the words for it, how text is read, and the rule itself."""

    expected: str
    accepts: Callable[[Any], bool]
    parse: Callable[[str], Any] = str
    secret: bool = False


class Setting(NamedTuple):
    """One setting, as its field declares it."""

    field: str
    #: Names in the environment; the first one that is set counts.
    names: tuple[str, ...]
    kind: Kind
    #: What it does, for the reference page.
    help: str

    @property
    def env(self) -> str:
        """Its name in the environment."""
        return self.names[0]


def env(*names: str, kind: Kind, help: str) -> msgspec.Meta:
    """Declares a setting: its names in the environment, what values it takes, and what it does."""
    return msgspec.Meta(description=help, extra={"names": names, "kind": kind})


@functools.cache
def settings_of(process: type[Settings]) -> tuple[Setting, ...]:
    """The settings of one kind of process, in the order of its fields."""
    hints = get_type_hints(process, include_extras=True)
    return tuple(_setting(field, hints[field].__metadata__[0]) for field in process.__struct_fields__)


def _setting(field: str, meta: msgspec.Meta) -> Setting:
    assert meta.extra is not None
    return Setting(field, meta.extra["names"], meta.extra["kind"], meta.description or "")


def count(least: int, most: int | None = None) -> Kind:
    """A whole number."""

    def accepts(value: Any) -> bool:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and value >= least and (most is None or value <= most)

    bounds = f", {least} or more" if most is None else f" from {least} to {most}"
    return Kind(f"a whole number{bounds}", accepts, int)


def seconds(*, zero: bool) -> Kind:
    """A length of time."""

    def accepts(value: Any) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and math.isfinite(value) and (value > 0 or (zero and value == 0))

    return Kind("seconds, 0 or more" if zero else "seconds, more than 0", accepts, float)


def text(expected: str, pattern: str) -> Kind:
    """Text of a certain shape."""
    rule = re.compile(pattern, re.DOTALL)
    return Kind(expected, lambda value: isinstance(value, str) and rule.fullmatch(value) is not None)


def _is_zone(value: Any) -> bool:
    if value == "UTC":  # known even on a machine without time zone data
        return True
    from zoneinfo import ZoneInfo  # a few milliseconds that most starts can save

    try:
        return isinstance(value, str) and bool(ZoneInfo(value))
    except (KeyError, ValueError, OSError):
        return False


def _is_secret(value: Any) -> bool:
    return isinstance(value, str) and (not value or len(value) >= MIN_SECRET_LENGTH)


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LEVEL = Kind(f"one of {', '.join(LEVELS)}", LEVELS.__contains__, str.upper)
SECRET = Kind(f"empty, or at least {MIN_SECRET_LENGTH} characters", _is_secret, secret=True)
TOKEN = Kind(
    "a token without blanks, or empty", lambda v: isinstance(v, str) and not re.search(r"\s", v), secret=True
)
ZONE = Kind("the name of a time zone, like UTC or Europe/Madrid", _is_zone)
_WORDS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


def _truth(word: str) -> bool:
    if word.lower() not in _WORDS:
        raise ValueError(word)
    return _WORDS[word.lower()]


SWITCH = Kind("true or false", lambda value: isinstance(value, bool), _truth)
MAYBE = Kind("true, false or nothing", lambda value: value is None or isinstance(value, bool), _truth)


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def shaped(expected: str, shape: Any, *, secret: bool = False) -> Kind:
    """JSON of a certain shape."""

    def accepts(value: Any) -> bool:
        try:
            msgspec.convert(value, shape)
        except msgspec.ValidationError:
            return False
        return True

    return Kind(expected, accepts, _json, secret)


def _parse(setting: Setting, text: str) -> Any:
    try:
        return setting.kind.parse(text)
    except ValueError:
        raise ConfigError(setting.env, setting.kind.expected, _shown(setting, text)) from None


def check(setting: Setting, name: str, value: Any) -> Any:
    if not setting.kind.accepts(value):
        raise ConfigError(name, setting.kind.expected, _shown(setting, value))
    return value


def _shown(setting: Setting, value: object) -> object:
    """`value` as it may appear in a log: secrets hidden, and the password inside a URI too."""
    if setting.kind.secret:
        return "(hidden)" if value else value
    return re.sub(r"(://[^:/@]*:)[^@]*@", r"\1***@", value) if isinstance(value, str) else value


def refuse_unknown(environ: Mapping[str, str]) -> None:
    """Stop at a variable with our prefix that nobody reads."""
    every = {name for process in _KINDS_OF_PROCESS for one in settings_of(process) for name in one.names}
    known = {name.removeprefix(PREFIX): name for name in every}
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known.values():
            near = get_close_matches(name.removeprefix(PREFIX), known, n=1)
            hint = f" (did you mean {known[near[0]]}?)" if near else ""
            # The value stays out of it: a mistyped secret is still a secret.
            raise ConfigError(name, f"the name of a setting{hint}", name)
