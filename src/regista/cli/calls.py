"""What commands that talk to an orchestrator share: the client, and input that people type."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..client import Client
from ..config import Connection
from ..terminal import escape_control_chars
from .errors import UsageError, check_state_dir, name_errors_by_flag


def connect(args: argparse.Namespace) -> Client:
    """A client of the orchestrator that flags and environment name."""
    with name_errors_by_flag(args, url="url", state_dir="dir"):
        connection = Connection.from_env(url=args.url, state_dir=args.dir)
    if not (connection.url and connection.token):
        check_state_dir(args.dir)
    return Client(connection=connection, on_wait=_waits)


def _waits(why: str, left_s: float) -> None:
    """Silence looks like an error. Beside the data, so that nobody who reads that is disturbed."""
    print(  # noqa: T201
        escape_control_chars(f"regista: {why}; trying again for {max(1, round(left_s))} s", one_line=True),
        file=sys.stderr,
        flush=True,
    )


def parse_json_object(flag: str, text: str) -> dict[str, Any]:
    """The JSON object that was typed, or lies in `@FILE`, or comes from standard input (`-`)."""
    body = _read(flag, text)
    if not body.strip():
        raise UsageError(f'{flag}: expected a JSON object like {{"name": "Ada"}}, got nothing at all')
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise UsageError(
            f'{flag}: expected a JSON object like {{"name": "Ada"}}, got no JSON ({error})'
        ) from None
    if not isinstance(value, dict):
        raise UsageError(f'{flag}: expected a JSON object like {{"name": "Ada"}}, got {_kind(value)}')
    return value


def parse_optional_object(flag: str, text: str | None) -> dict[str, Any] | None:
    """The same, where nothing may have been given."""
    return None if text is None else parse_json_object(flag, text)


def parse_attributes(flag: str, given: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` each; a value that is no JSON is text."""
    found: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise UsageError(f"{flag}: expected NAME=VALUE, like AssetType=video, got {text!r}")
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found


def _read(flag: str, text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_bytes()
        except OSError as error:
            raise UsageError(f"{flag}: cannot read {text[1:]}: {error.strerror}") from None
    return text.encode("utf-8", "surrogateescape")


def _kind(value: object) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
