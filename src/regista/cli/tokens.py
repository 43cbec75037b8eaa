"""`regista tokens new`: a token, and what to write down so that its owner may come in."""

import argparse
import secrets

import msgspec

from ..tokens import digest
from . import exits
from .output import screen_for
from .refusals import UsageError

#: Bytes of chance in a token.
_STRENGTH = 32


def new(asked: argparse.Namespace) -> int:
    """Make one. It is shown once; of a client's token only the hash is written down."""
    name = asked.client or asked.worker
    if not name.strip() or any(ord(letter) < 32 for letter in name):
        raise UsageError(f"expected a name, got {name!r}")
    if asked.operator and asked.worker:
        raise UsageError("--operator is for clients")
    token = secrets.token_urlsafe(_STRENGTH)
    lines = _client(name, token, asked.operator) if asked.client else _worker(name, token)
    screen = screen_for(asked)
    if screen.json:
        screen.record({"token": token, "file": _file(asked), "toml": "\n".join(lines)})
    else:
        screen.say(f"{token}\n\nIt is shown this once. For {_file(asked)}, and then SIGHUP or a restart:\n")
        screen.say("\n".join(lines))
    return exits.OK


def _file(asked: argparse.Namespace) -> str:
    return "clients.toml (CLIENTS_CONFIG_PATH)" if asked.client else "workers.toml (WORKERS_CONFIG_PATH)"


def _client(name: str, token: str, operator: bool) -> list[str]:
    lines = [f"[{_quoted(name)}]", f'token_sha256 = "{digest(token)}"']
    return [*lines, "operator = true"] if operator else lines


def _worker(name: str, token: str) -> list[str]:
    return [f"[{_quoted(name)}]", f'token = "{token}"']


def _quoted(name: str) -> str:
    """A key of TOML: a JSON string is one, too."""
    return msgspec.json.encode(name).decode()
