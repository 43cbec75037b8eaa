"""`regista tokens …`: a token and what to write down so that its owner may come in; one-time passwords; taking back."""

import argparse
import secrets

import msgspec

from ..tokens import digest
from . import exits
from .calls import client_for
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
        screen.say(f"{token}\n\nShown only once. Add to {_file(asked)}, then send SIGHUP:\n")
        screen.say("\n".join(lines))
    return exits.OK


async def otp(asked: argparse.Namespace) -> int:
    """A one-time password. On a terminal with what to do with it; into a pipe it goes alone."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        made = await client.one_time_password(asked.worker_id)
    if screen.json:
        screen.document(made)
        return exits.OK
    screen.say(made["password"])
    whose = made["worker_id"] or "any worker"
    screen.note(f"REGISTA_TOKEN for {whose}; valid once, {made['expires_in']:.0f} s")
    return exits.OK


async def revoke(asked: argparse.Namespace) -> int:
    """End what a worker was given."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        ended = await client.revoke(asked.worker_id)
    if screen.json:
        screen.document(ended)
    elif ended["logins"] or ended["passwords"]:
        screen.say(f"{asked.worker_id}: {ended['logins']} logins and {ended['passwords']} passwords ended")
    else:
        screen.say(f"{asked.worker_id}: no worker of this id has a login or a password; nothing ended")
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
