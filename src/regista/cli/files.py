"""`regista jobs files`: what a job has, and its content up and down."""

import argparse
import sys
from pathlib import Path

from ..client import Client
from ..model.status import JobStatus
from ..schemas.files import FileLink
from . import exits
from .calls import client_for
from .output import Screen, age, screen_for
from .refusals import UsageError

_NOTHING = "no files; `--put FILE` adds one, and all are gone when the job has ended"


async def files(asked: argparse.Namespace) -> int:
    """List the files of a job, or move one of them."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        if asked.put is not None:
            return await _put(client, screen, asked)
        if asked.get is not None:
            return await _get(client, screen, asked)
        if asked.link is not None:
            return _linked(screen, await client.files.download_url(asked.job_id, asked.link))
        return await _listed(client, screen, asked.job_id)


async def _listed(client: Client, screen: Screen, job_id: str) -> int:
    found = await client.files.list(job_id)
    if screen.json:
        screen.document({"items": found})
        return exits.OK
    rows = [[each.name, f"{each.size:,}", age(each.modified)] for each in found]
    if not rows and JobStatus((await client.get(job_id)).status).terminal:
        screen.note("the job has ended, and its files went with it")
        return exits.OK
    screen.table(["file", "bytes", "age"], rows, _NOTHING)
    return exits.OK


async def _put(client: Client, screen: Screen, asked: argparse.Namespace) -> int:
    size = _size_of(asked.put)
    name = await client.files.upload(asked.job_id, asked.put, asked.name or "")
    return _said(screen, {"name": name, "size": size}, name)


def _size_of(path: str) -> int:
    if not Path(path).is_file():
        raise UsageError(f"--put: expected a file, got {path}, which is none")
    return Path(path).stat().st_size


async def _get(client: Client, screen: Screen, asked: argparse.Namespace) -> int:
    if asked.output == "-":
        async for piece in client.files.stream(asked.job_id, asked.get):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return exits.OK
    target = _free(asked)
    try:
        place = await client.files.download(asked.job_id, asked.get, target)
    except OSError as error:
        raise UsageError(f"--output: cannot write {target}: {error.strerror or error}") from None
    return _said(screen, {"name": asked.get, "path": str(place)}, str(place))


def _free(asked: argparse.Namespace) -> Path:
    """Where it goes. What lies there already is somebody's, unless we are told otherwise."""
    target = Path(asked.output or ".")
    target = target / asked.get.rpartition("/")[2] if target.is_dir() else target
    if target.exists() and not asked.force:
        raise UsageError(
            f"--get: {target} is there already; --force replaces it, --output FILE names another place"
        )
    return target


def _said(screen: Screen, document: dict[str, object], words: str) -> int:
    if screen.json:
        screen.document(document)
    else:
        screen.say(words)
    return exits.OK


def _linked(screen: Screen, link: FileLink) -> int:
    if screen.json:
        screen.document(link)
    else:
        screen.say(link.url)
    return exits.OK
