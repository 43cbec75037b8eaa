"""`regista history`: what happened, to take along."""

import argparse
import sys
from pathlib import Path
from typing import BinaryIO

from ..terminal import escape_json
from . import exit_codes
from .calls import connect
from .errors import UsageError
from .output import output_for


async def export(args: argparse.Namespace) -> int:
    """Jobs and their events, as lines of JSON. What was written before a cut stays, and the exit code says so."""
    if args.output is None:
        return await _export(args, sys.stdout.buffer)
    try:
        with _opened(args.output) as file:
            return await _export(args, file)
    except OSError as error:
        raise UsageError(f"--output: cannot write {args.output}: {error.strerror}") from None


def _opened(path: str) -> BinaryIO:
    return Path(path).open("wb")


async def _export(args: argparse.Namespace, out: BinaryIO) -> int:
    output = output_for(args)
    person = args.output is None and sys.stdout.isatty()
    last = b""
    async with connect(args) as client:
        async for line in client.export(args.query, status=args.status, blueprint=args.blueprint):
            # A terminal would obey what strangers wrote; a file takes it as it is.
            out.write(escape_json(line.decode()).encode() + b"\n" if person else line + b"\n")
            last = line
    out.flush()
    output.notice(f"all of it: {last.decode()}")
    return exit_codes.OK
