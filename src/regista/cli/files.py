"""`regista jobs files`: what a job has, and its content up and down."""

import argparse
import sys
from pathlib import Path

from ..client import Client
from ..model.status import JobStatus
from ..schemas.files import FileLink
from . import exit_codes
from .calls import connect
from .errors import UsageError
from .output import Output, age, output_for

_NOTHING = "no files; `--put FILE` adds one, and all are gone when the job has ended"


async def files(args: argparse.Namespace) -> int:
    """List the files of a job, or move one of them."""
    output = output_for(args)
    async with connect(args) as client:
        if args.put is not None:
            return await _put(client, output, args)
        if args.get is not None:
            return await _get(client, output, args)
        if args.link is not None:
            return _linked(output, await client.files.download_url(args.job_id, args.link))
        return await _listed(client, output, args.job_id)


async def _listed(client: Client, output: Output, job_id: str) -> int:
    found = await client.files.list(job_id)
    if output.json:
        output.json_document({"items": found})
        return exit_codes.OK
    rows = [[each.name, f"{each.size:,}", age(each.modified)] for each in found]
    if not rows and JobStatus((await client.get(job_id)).status).terminal:
        output.notice("the job has ended, and its files went with it")
        return exit_codes.OK
    output.table(["file", "bytes", "age"], rows, _NOTHING)
    return exit_codes.OK


async def _put(client: Client, output: Output, args: argparse.Namespace) -> int:
    size = _size_of(args.put)
    name = await client.files.upload(args.job_id, args.put, args.name or "")
    return _said(output, {"name": name, "size": size}, name)


def _size_of(path: str) -> int:
    if not Path(path).is_file():
        raise UsageError(f"--put: expected a file, got {path}, which is none")
    return Path(path).stat().st_size


async def _get(client: Client, output: Output, args: argparse.Namespace) -> int:
    if args.output == "-":
        async for piece in client.files.stream(args.job_id, args.get):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return exit_codes.OK
    target = _free(args)
    try:
        place = await client.files.download(args.job_id, args.get, target)
    except OSError as error:
        raise UsageError(f"--output: cannot write {target}: {error.strerror or error}") from None
    return _said(output, {"name": args.get, "path": str(place)}, str(place))


def _free(args: argparse.Namespace) -> Path:
    """Where it goes. What lies there already is somebody's, unless we are told otherwise."""
    target = Path(args.output or ".")
    target = target / args.get.rpartition("/")[2] if target.is_dir() else target
    if target.exists() and not args.force:
        raise UsageError(
            f"--get: {target} is there already; --force replaces it, --output FILE names another place"
        )
    return target


def _said(output: Output, document: dict[str, object], words: str) -> int:
    if output.json:
        output.json_document(document)
    else:
        output.line(words)
    return exit_codes.OK


def _linked(output: Output, link: FileLink) -> int:
    if output.json:
        output.json_document(link)
    else:
        output.line(link.url)
    return exit_codes.OK
