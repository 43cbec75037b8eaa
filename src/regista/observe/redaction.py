"""What a log never shows: tokens, passwords and secrets, wherever they stand, and what jobs carry.

Nothing of ours logs them to begin with. This is the second net, for the words of libraries and of other people's
exceptions: values that are known to be secret are looked for as they are, anything else by where it stands.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..config import Config, WorkerConfig
from ..config.settings import settings_of
from ..redaction import HIDDEN
from ..tokens import CLIENT_FILE, WORKER_FILE, find_token

#: A shorter secret would be found in every second word.
_SHORTEST = 6
#: The name of a secret. Its length is bounded: a text of a stranger must not keep the search busy.
_SECRET = (
    r"(?:[\w-]{0,40}(?:token|password|passwd|secret|otp|api[_-]?key|authorization|signature|credentials?))"
)
#: Fields that are hidden whatever they hold.
_SECRET_FIELD = re.compile(_SECRET, re.IGNORECASE)
#: Fields that hold what a job carries.
_CARRIED = frozenset(
    {
        "params",
        "input",
        "inputs",
        "initial_data",
        "result",
        "results",
        "data",
        "payload",
        "body",
        "state_history",
    }
)
#: Where a secret stands → what is left of it.
_PLACES: tuple[tuple[re.Pattern[str], str], ...] = (
    # Authorization: Bearer x, X-Client-Token: x, in the words of a header
    (re.compile(r"\b((?:proxy-)?authorization\s*[:=]\s*)(?:\w+\s+)?[^\s,;'\"]+", re.I), rf"\1{HIDDEN}"),
    (
        re.compile(r"\b(x-[\w-]{0,40}(?:token|secret|key|signature)\s*[:=]\s*)[^\s,;'\"]+", re.I),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.I), rf"\1 {HIDDEN}"),
    # token=x, in an address or a list of words
    (re.compile(rf"\b({_SECRET}=)[^\s&'\"<>,;)]+", re.I), rf"\1{HIDDEN}"),
    # {"token": "x"}, in JSON or a repr
    (re.compile(rf"(['\"]{_SECRET}['\"]\s*:\s*b?)(['\"]).*?\2", re.I), rf"\1\2{HIDDEN}\2"),
    (re.compile(rf"(\(b?['\"]{_SECRET}['\"]\s*,\s*b?)(['\"]).*?\2", re.I), rf"\1\2{HIDDEN}\2"),
    # short-lived worker tokens and one-time passwords, wherever they stand
    (re.compile(r"\b(rst|rsr|rop)\.[\w.-]{20,}"), rf"\1.{HIDDEN}"),
    # scheme://user:x@host
    (re.compile(r"(://[^:/@\s]{0,200}:)[^@\s/]{1,500}@"), rf"\1{HIDDEN}@"),
)


class Redaction(logging.Filter):
    """Hides secrets in every record that passes; `hide` does it to a text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets: set[str] = set()
        self._known: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """From now on these are hidden, too."""
        self._secrets.update(one for one in secrets if len(one) >= _SHORTEST)
        longest_first = sorted(self._secrets, key=len, reverse=True)  # one may contain another
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes; what it says is what may be said."""
        record.msg, record.args = self.hide(_message(record)), None
        for name, value in vars(record).items():
            if name in _CARRIED or (_SECRET_FIELD.fullmatch(name) and value):
                setattr(record, name, HIDDEN)
            elif name not in _OWN:
                setattr(record, name, self._shown(value))
        return True

    def hide(self, text: str) -> str:
        """The text without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for pattern, left in _PLACES:
            text = pattern.sub(left, text)
        return text

    def _shown(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.hide(value if isinstance(value, str) else str(value))


#: What every record has, and no secret is in: names, numbers, and what is formatted elsewhere.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  # a line with the wrong number of arguments is still worth a line
        return str(record.msg)


def secrets_of(config: Config | WorkerConfig, state_dir: str = "") -> set[str]:
    """Every value that is known to be secret: settings, tokens in files, and those that were made for loopback."""
    found = {str(getattr(config, one.field)) for one in settings_of(type(config)) if one.kind.secret}
    if isinstance(config, Config):
        state_dir = config.state_dir
        for path in (config.clients_config_path, config.workers_config_path):
            found |= _tokens_in(path)
    for name in (CLIENT_FILE, WORKER_FILE):
        found.add(find_token(state_dir, name) or "")
    return found - {""}


def _tokens_in(path: str) -> set[str]:
    """The tokens of a file. What is wrong with it is said by whoever reads it in earnest."""
    if not path:
        return set()
    import tomllib  # a few milliseconds that starts without files can save

    try:
        tables = tomllib.loads(Path(path).read_text())
    except (OSError, ValueError):
        return set()
    return {str(one["token"]) for one in tables.values() if isinstance(one, dict) and "token" in one}
