"""`regista tokens …`: a token and what to write down so that its owner may come in; one-time passwords; taking back."""

import argparse
import secrets

import msgspec

from ..tokens import digest
from . import exit_codes
from .calls import connect
from .errors import UsageError
from .output import output_for

#: Bytes of chance in a token.
_STRENGTH = 32


def new(args: argparse.Namespace) -> int:
    """Make one. It is shown once; of a client's token only the hash is written down."""
    name = args.client or args.worker
    if not name.strip() or any(ord(letter) < 32 for letter in name):
        raise UsageError(f"expected a name, got {name!r}")
    if args.operator and args.worker:
        raise UsageError("--operator is for clients")
    token = secrets.token_urlsafe(_STRENGTH)
    lines = _client(name, token, args.operator) if args.client else _worker(name, token)
    output = output_for(args)
    if output.json:
        output.json_line({"token": token, "file": _file(args), "toml": "\n".join(lines)})
    else:
        output.line(f"{token}\n\nShown only once. Add to {_file(args)}, then send SIGHUP:\n")
        output.line("\n".join(lines))
    return exit_codes.OK


async def otp(args: argparse.Namespace) -> int:
    """A one-time password. On a terminal with what to do with it; into a pipe it goes alone."""
    output = output_for(args)
    async with connect(args) as client:
        made = await client.one_time_password(args.worker_id)
    if output.json:
        output.json_document(made)
        return exit_codes.OK
    output.line(made["password"])
    whose = made["worker_id"] or "any worker"
    output.notice(f"REGISTA_TOKEN for {whose}; valid once, {made['expires_in']:.0f} s")
    return exit_codes.OK


async def revoke(args: argparse.Namespace) -> int:
    """End what a worker was given."""
    output = output_for(args)
    async with connect(args) as client:
        ended = await client.revoke(args.worker_id)
    if output.json:
        output.json_document(ended)
    elif ended["logins"] or ended["passwords"]:
        output.line(f"{args.worker_id}: {ended['logins']} logins and {ended['passwords']} passwords ended")
    else:
        output.line(f"{args.worker_id}: no worker of this id has a login or a password; nothing ended")
    return exit_codes.OK


def _file(args: argparse.Namespace) -> str:
    return "clients.toml (CLIENTS_CONFIG_PATH)" if args.client else "workers.toml (WORKERS_CONFIG_PATH)"


def _client(name: str, token: str, operator: bool) -> list[str]:
    lines = [f"[{_quoted(name)}]", f'token_sha256 = "{digest(token)}"']
    return [*lines, "operator = true"] if operator else lines


def _worker(name: str, token: str) -> list[str]:
    return [f"[{_quoted(name)}]", f'token = "{token}"']


def _quoted(name: str) -> str:
    """A key of TOML: a JSON string is one, too."""
    return msgspec.json.encode(name).decode()
