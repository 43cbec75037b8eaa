"""Every setting, checked once. This is the only file that reads the environment.

A setting has a field here (`lease_s`), a name in the environment (`REGISTA_LEASE_SECONDS`) and a paragraph
in docs/reference/settings.md. Names without the prefix are those of the source documents.
"""

import math
import os
import re
import socket
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, Self

import msgspec

from .errors import ConfigError

#: Variables that begin like this are ours, so an unknown one is a typing mistake.
PREFIX = "REGISTA_"

#: An approval token is an HMAC under this secret: a short one could be guessed offline.
MIN_SECRET_LENGTH = 16


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """How one orchestrator behaves: built once, checked whole, handed to the parts that need it.

    `Config(lease_s=10)` in code, `Config.from_env()` in a process. Either raises `ConfigError`, which says
    what was expected and what was found. A secret is never shown, in `repr` or in an error.
    """

    # Who and where
    instance_id: str = msgspec.field(default_factory=socket.gethostname)
    storage: str = "memory"
    history_database_uri: str = ""
    blueprints_dir: str = ""
    tz: str = "UTC"
    log_level: str = "INFO"
    approval_secret: str = ""

    # Tasks and handlers
    job_max_retries: int = 3
    handler_retry_first_s: float = 1.0
    lost_budget: int = 10
    worker_timeout_s: float = 300.0
    cancel_grace_s: float = 30.0

    # The machinery
    executor_max_concurrent_jobs: int = 1000
    patience_s: float = 0.02
    lease_s: float = 30.0
    watcher_interval_s: float = 20.0
    watcher_limit: int = 500

    def __post_init__(self) -> None:
        for setting in SETTINGS:
            _check(setting, setting.field, getattr(self, setting.field))

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        # msgspec offers this to pretty printers beside `__repr__`; both must keep the secrets.
        return [(s.field, _shown(s, getattr(self, s.field))) for s in SETTINGS]

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """The settings that `environ` (by default, the process's own) names; the rest keeps its default.

        A variable that is set but empty counts as not set.
        """
        environ = os.environ if environ is None else environ
        _refuse_unknown(environ)
        found: dict[str, Any] = {}
        for setting in SETTINGS:
            if text := environ.get(setting.env, "").strip():
                found[setting.field] = _check(setting, setting.env, _parse(setting, text))
        return cls(**found)


class Kind(NamedTuple):
    """What values a setting takes: the words for it, how text is read, and the rule itself."""

    expected: str
    accepts: Callable[[Any], bool]
    parse: Callable[[str], Any] = str
    secret: bool = False


class Setting(NamedTuple):
    """One setting: its two names and its kind."""

    env: str
    field: str
    kind: Kind


def _count(least: int) -> Kind:
    def accepts(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return Kind(f"a whole number, {least} or more", accepts, int)


def _seconds(*, zero: bool) -> Kind:
    def accepts(value: Any) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and math.isfinite(value) and (value > 0 or (zero and value == 0))

    return Kind("seconds, 0 or more" if zero else "seconds, more than 0", accepts, float)


def _text(expected: str, pattern: str) -> Kind:
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


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LEVEL = Kind(f"one of {', '.join(_LEVELS)}", _LEVELS.__contains__, str.upper)
_SECRET = Kind(f"empty, or at least {MIN_SECRET_LENGTH} characters", _is_secret, secret=True)
_ZONE = Kind("the name of a time zone, like UTC or Europe/Madrid", _is_zone)

#: In the order of the fields above, and of docs/reference/settings.md.
SETTINGS = (
    Setting("INSTANCE_ID", "instance_id", _text("a name without blanks", r"\S+")),
    Setting("REGISTA_STORAGE", "storage", _text("memory or sqlite:PATH", r"memory|sqlite:.+")),
    Setting("HISTORY_DATABASE_URI", "history_database_uri", _text("empty or sqlite:PATH", r"(sqlite:.+)?")),
    Setting("BLUEPRINTS_DIR", "blueprints_dir", _text("a directory, or empty", r".*")),
    Setting("TZ", "tz", _ZONE),
    Setting("LOG_LEVEL", "log_level", _LEVEL),
    Setting("REGISTA_APPROVAL_SECRET", "approval_secret", _SECRET),
    Setting("JOB_MAX_RETRIES", "job_max_retries", _count(0)),
    Setting("REGISTA_HANDLER_RETRY_FIRST_SECONDS", "handler_retry_first_s", _seconds(zero=True)),
    Setting("REGISTA_LOST_BUDGET", "lost_budget", _count(0)),
    Setting("WORKER_TIMEOUT_SECONDS", "worker_timeout_s", _seconds(zero=False)),
    Setting("REGISTA_CANCEL_GRACE_SECONDS", "cancel_grace_s", _seconds(zero=True)),
    Setting("EXECUTOR_MAX_CONCURRENT_JOBS", "executor_max_concurrent_jobs", _count(1)),
    Setting("REGISTA_PATIENCE_SECONDS", "patience_s", _seconds(zero=True)),
    Setting("REGISTA_LEASE_SECONDS", "lease_s", _seconds(zero=False)),
    Setting("WATCHER_INTERVAL_SECONDS", "watcher_interval_s", _seconds(zero=False)),
    Setting("WATCHER_LIMIT", "watcher_limit", _count(1)),
)


def _parse(setting: Setting, text: str) -> Any:
    try:
        return setting.kind.parse(text)
    except ValueError:
        raise ConfigError(setting.env, setting.kind.expected, _shown(setting, text)) from None


def _check(setting: Setting, name: str, value: Any) -> Any:
    if not setting.kind.accepts(value):
        raise ConfigError(name, setting.kind.expected, _shown(setting, value))
    return value


def _shown(setting: Setting, value: object) -> object:
    """`value` as it may appear in a log: secrets hidden, and the password inside a URI too."""
    if setting.kind.secret:
        return "(hidden)" if value else value
    return re.sub(r"(://[^:/@]*:)[^@]*@", r"\1***@", value) if isinstance(value, str) else value


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    known = {setting.env.removeprefix(PREFIX): setting.env for setting in SETTINGS}
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known.values():
            near = get_close_matches(name.removeprefix(PREFIX), known, n=1)
            hint = f" (did you mean {known[near[0]]}?)" if near else ""
            # The value stays out of it: a mistyped secret is still a secret.
            raise ConfigError(name, f"the name of a setting{hint}", name)
