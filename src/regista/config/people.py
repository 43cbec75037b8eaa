"""`clients.toml` and `workers.toml`: who may come in. Read strictly: a mistake stops the start and names its line."""

import logging
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ConfigError
from ..model import ClientConfig, Rate
from ..tokens import digest
from .rates import EXPECTED as EXPECTED_RATE
from .rates import OF_CLIENTS, parse_rate

if TYPE_CHECKING:
    from .orchestrator import Config

log = logging.getLogger("regista.doors")

#: How a table of `workers.toml` begins that is for all workers whose id fits.
PATTERN = "pattern:"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"\S(.*\S)?")
_Rule = Callable[[Any], bool]
#: Keys of a client's table that are no handler's business; config/client_webhooks.py reads them.
_WEBHOOK_KEYS = {"webhook_url", "webhook_secret", "webhook_events"}
_CLIENT_KEYS = {"token", "token_sha256", "plan", "monthly_attempts", "operator", "params", "rate_limits"}
#: A key that is so much like one of ours is a mistake, and not one of somebody's own.
_LOOKS_LIKE = 0.85


class WorkerTokens(NamedTuple):
    """Tokens of single workers, and of those whose id fits a pattern. They key signatures, so they are kept as they are."""

    by_id: Mapping[str, str]
    by_pattern: tuple[tuple[str, str], ...] = ()

    def of(self, worker_id: str) -> str | None:
        """The token that this worker, and no other, must bring; None when it has none of its own."""
        own = self.by_id.get(worker_id)
        if own is not None:
            return own
        fits = (token for pattern, token in self.by_pattern if fnmatchcase(worker_id, pattern))
        return next(fits, None)


class _File:
    """A TOML file, and where in it something stands."""

    def __init__(self, path: Path) -> None:
        import tomllib  # a few milliseconds that starts without files can save

        self.path = path
        try:
            self._text = path.read_text()
            self.tables = tomllib.loads(self._text)
        except OSError as error:
            raise ConfigError(str(path), "a file that can be read", error.strerror or str(error)) from None
        except UnicodeDecodeError:
            raise ConfigError(str(path), "text in UTF-8", "something else") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(str(path), "TOML", str(error)) from None

    def wrong(self, table: str, key: str | None, expected: str, got: object) -> ConfigError:
        """The refusal of a value, or of a table."""
        where = f"{self.path}, line {self._line(table, key)}: {table}{'.' + key if key else ''}"
        return ConfigError(where, expected, got)

    def wrong_in(self, table: str, inner: str, key: str, expected: str, got: object) -> ConfigError:
        """The refusal of a value in a table of a table, however the two are written."""
        apart = re.compile(
            rf"\s*\[\s*[\"']?{re.escape(table)}[\"']?\s*\.\s*[\"']?{re.escape(inner)}[\"']?\s*\]"
        )
        lines = self._text.splitlines()
        start = next((n for n, line in enumerate(lines) if apart.match(line)), None)
        entry = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        line = self._line(table, inner)
        if start is not None:
            line = next((n + 1 for n in range(start, len(lines)) if entry.match(lines[n])), start + 1)
        return ConfigError(f"{self.path}, line {line}: {table}.{inner}.{key}", expected, got)

    def _line(self, table: str, key: str | None) -> int:
        """Where it stands; the table's own line where the key cannot be found, the first where neither can."""
        lines = self._text.splitlines()
        head = re.compile(rf"\s*(\[\s*)?[\"']?{re.escape(table)}[\"']?\s*[\].=]")
        start = next((n for n, line in enumerate(lines) if head.match(line)), 0)
        if key is not None:
            entry = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
            for number in range(start, len(lines)):
                if entry.match(lines[number]):
                    return number + 1
        return start + 1


def read_clients(path: str | Path) -> dict[str, ClientConfig]:
    """SHA-256 of each token → its client. The tokens themselves are forgotten here."""
    file = _File(Path(path))
    clients: dict[str, ClientConfig] = {}
    for name, table in file.tables.items():
        _check_table(file, name, table)
        _refuse_mistyped(file, name, table)
        hashed = _hash_of(file, name, table)
        if hashed in clients:
            raise file.wrong(name, "token", "a token of its own", f"the token of {clients[hashed].name}")
        clients[hashed] = _client(file, name, table)
    return clients


def add_clients(known: dict[str, ClientConfig], more: Mapping[str, ClientConfig], source: str) -> None:
    """Let further clients in, by the hashes of their tokens. ConfigError when a token is already somebody's.

    The later one would silently take the other's place, and might be an operator.
    """
    for hashed, client in more.items():
        if hashed in known:
            expected = f"a token that no other client has ({client.name})"
            raise ConfigError(source, expected, f"the token of the client {known[hashed].name}")
        known[hashed] = client


def warn_of_nobody(config: "Config", clients: Mapping[str, ClientConfig]) -> None:
    """A file without a client is no mistake, but hardly meant."""
    if config.clients_config_path and not clients:
        log.warning(
            "%s names no client, so nobody may ask for anything: add one (`regista tokens new --client NAME` "
            "shows how) and send SIGHUP, or set CLIENT_TOKEN",
            config.clients_config_path,
            extra={"action": "no_clients"},
        )


def _refuse_mistyped(file: _File, name: str, table: dict[str, Any]) -> None:
    """Keys of one's own are for handlers. One that almost is ours would look as if it held."""
    known = _CLIENT_KEYS | _WEBHOOK_KEYS
    for key in table:
        near = get_close_matches(key, sorted(known), n=1, cutoff=_LOOKS_LIKE)
        if near and key not in known:
            hint = f"did you mean {near[0]}? one of your own that looks like it goes into params"
            raise file.wrong(name, key, f"a key that is known ({hint})", key)


def _client(file: _File, name: str, table: dict[str, Any]) -> ClientConfig:
    plan = _value(file, name, table, "plan", "text", _is_text, "")
    most = _value(file, name, table, "monthly_attempts", "a whole number, 0 or more", _is_count, None)
    operator = _value(file, name, table, "operator", "true or false", lambda v: isinstance(v, bool), False)
    params = _value(file, name, table, "params", "a table", lambda v: isinstance(v, dict), {})
    more = {key: value for key, value in table.items() if key not in _CLIENT_KEYS | _WEBHOOK_KEYS}
    return ClientConfig(
        name=name,
        plan=plan,
        monthly_attempts=most,
        params=more | params,
        operator=operator,
        rate_limits=_rate_limits(file, name, table),
    )


def _rate_limits(file: _File, name: str, table: dict[str, Any]) -> dict[str, Rate | None]:
    """`rate_limits = { submit = "100/s", read = "off" }`: how often this client may do what."""
    given = _value(file, name, table, "rate_limits", "a table", lambda v: isinstance(v, dict), {})
    rates: dict[str, Rate | None] = {}
    for context, text in given.items():
        if context not in OF_CLIENTS:
            expected = f"one of {', '.join(OF_CLIENTS)}"
            raise file.wrong_in(name, "rate_limits", context, expected, context)
        try:
            rates[context] = parse_rate(text)
        except ValueError:
            raise file.wrong_in(name, "rate_limits", context, EXPECTED_RATE, text) from None
    return rates


def _hash_of(file: _File, name: str, table: dict[str, Any]) -> str:
    """What is kept of a client's token: it may be written down hashed to begin with."""
    if ("token" in table) == ("token_sha256" in table):
        raise file.wrong(
            name, None, "either token or token_sha256", "both" if "token" in table else "neither"
        )
    if "token" in table:
        return digest(_value(file, name, table, "token", "a text that is not empty", _is_token))
    hashed: str = _value(
        file,
        name,
        table,
        "token_sha256",
        "64 hex digits",
        lambda value: isinstance(value, str) and _SHA256.fullmatch(value) is not None,
    )
    return hashed


def read_workers(path: str | Path) -> WorkerTokens:
    """The token of each worker that has one of its own."""
    file = _File(Path(path))
    by_id: dict[str, str] = {}
    patterns: list[tuple[str, str]] = []
    owners: dict[str, str] = {}
    for name, table in file.tables.items():
        _check_table(file, name, table)
        unknown = [key for key in table if key not in ("token", "description")]
        if unknown:
            raise file.wrong(name, unknown[0], "one of token, description", unknown[0])
        token = _value(file, name, table, "token", "a text that is not empty", _is_token)
        _value(file, name, table, "description", "text", _is_text, "")
        if token in owners:
            raise file.wrong(name, "token", "a token of its own", f"the token of {owners[token]}")
        owners[token] = name
        if name.startswith(PATTERN):
            patterns.append((name.removeprefix(PATTERN), token))
        else:
            by_id[name] = token
    return WorkerTokens(by_id, tuple(patterns))


def missing_tokens(config: "Config") -> list[str]:
    """The settings without which nobody may come in, but for what is made on loopback."""
    needed = {
        "CLIENT_TOKEN": config.client_token or config.clients_config_path,
        "WORKER_TOKEN": config.worker_token
        or config.workers_config_path
        or config.worker_auth_mode == "mtls-only",
    }
    return [name for name, given in needed.items() if not given]


def reread_files(config: "Config") -> list[str]:
    """What a SIGHUP reads again."""
    files = [config.clients_config_path, config.workers_config_path, config.schedules_config_path]
    return [path for path in (*files, config.tls_cert_path) if path]


def _check_table(file: _File, name: str, table: Any) -> None:
    if not isinstance(table, dict):
        raise file.wrong(name, None, f"a table ([{name}])", table)
    if _NAME.fullmatch(name) is None:
        raise file.wrong(name, None, "a name", name)


_MISSING: Any = object()


def _value(
    file: _File,
    name: str,
    table: dict[str, Any],
    key: str,
    expected: str,
    rule: _Rule,
    default: Any = _MISSING,
) -> Any:
    if key not in table:
        if default is _MISSING:
            raise file.wrong(name, None, f"{key}: {expected}", "nothing")
        return default
    if not rule(table[key]):
        raise file.wrong(name, key, expected, "…" if "token" in key else table[key])
    return table[key]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


#: For whoever reads further keys of the same files (config/client_webhooks.py).
ConfigFile = _File
value_of = _value
