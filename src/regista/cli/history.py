"""`regista history`: what happened, to take along."""

import argparse
import sys
from pathlib import Path
from typing import BinaryIO

from . import exits
from .calls import client_for
from .output import screen_for, visible_json
from .refusals import UsageError


async def export(asked: argparse.Namespace) -> int:
    """Jobs and their events, as lines of JSON. What was written before a cut stays, and the exit code says so."""
    if asked.output is None:
        return await _export(asked, sys.stdout.buffer)
    try:
        with _opened(asked.output) as file:
            return await _export(asked, file)
    except OSError as error:
        raise UsageError(f"--output: cannot write {asked.output}: {error.strerror}") from None


def _opened(path: str) -> BinaryIO:
    return Path(path).open("wb")


async def _export(asked: argparse.Namespace, out: BinaryIO) -> int:
    screen = screen_for(asked)
    person = asked.output is None and sys.stdout.isatty()
    last = b""
    async with client_for(asked) as client:
        async for line in client.export(asked.query, status=asked.status, blueprint=asked.blueprint):
            # A terminal would obey what strangers wrote; a file takes it as it is.
            out.write(visible_json(line.decode()).encode() + b"\n" if person else line + b"\n")
            last = line
    out.flush()
    screen.note(f"all of it: {last.decode()}")
    return exits.OK
