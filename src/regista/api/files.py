"""Files of jobs over HTTP: what there is, and links that content goes up and comes down by.

Content never passes through these operations: a link leads to the payload store itself, or, where that cannot sign
links, to `file_links` here.
"""

from datetime import timedelta
from typing import Any

from aiohttp import web
from msgspec import Struct

from ..errors import BadFileName, FileMissing, JobAlreadyTerminal
from ..payloads.base import FileInfo, check_name
from ..payloads.task_files import TaskFiles
from ..schemas.files import MAX_LINK_S, FileLink, FileObject, Seconds, UploadRequest
from ..schemas.pages import Page, encode_position
from . import bodies, parameters, view
from .address import is_secure
from .operations import Operations
from .parameters import NEXT, Parameter, page_limit
from .problems import Problem
from .stage import STAGE, Stage

routes = Operations("files")

_PROBLEMS = {501: "no payload store is configured", 503: "the payload store is away"}
_LIMIT = page_limit(1000)
_NOT_YOURS = "no such job of yours"
_EXPIRES = Parameter(
    name="expires_in",
    words="Seconds for which the link shall be good.",
    schema={"type": "number", "exclusiveMinimum": 0, "maximum": MAX_LINK_S, "default": 3600},
)


class _Wish(Struct, frozen=True, forbid_unknown_fields=True):
    """A FileWish whose name was not looked at yet: `check_name` says better than a pattern what is wrong with it."""

    name: str
    expires_in: Seconds = 3600.0


@routes.get(
    "/jobs/{job_id}/files",
    parameters=[_LIMIT, NEXT],
    answers={200: Page[FileObject]},
    problems={404: _NOT_YOURS, **_PROBLEMS},
)
async def find(request: web.Request) -> web.Response:
    """List the files of a job, by name.

    They are there until the job ends; a quarantined job keeps them.
    """
    stage = request.app[STAGE]
    after = parameters.place(request, str) or ""
    limit = parameters.limit(request, stage.config.max_page, _LIMIT)
    files = await _files(request, stage)
    show = view.clock_of(stage.config)
    found = [each for each in await files.list() if each.name > after]
    items = [
        FileObject(name=each.name, size=each.size, modified=show(each.modified), etag=each.etag)
        for each in found[:limit]
    ]
    return view.json(Page[Any](items, encode_position(items[-1].name) if len(found) > limit else None))


@routes.post(
    "/jobs/{job_id}/files",
    body=UploadRequest,
    answers={201: FileLink},
    problems={404: _NOT_YOURS, 409: "the job has ended", **_PROBLEMS},
)
async def create(request: web.Request) -> web.Response:
    """Get a link to write a file of a job.

    `PUT` the content to its `url`; there is no other limit than REGISTA_MAX_FILE_BYTES, and that only where the
    orchestrator takes the content itself. A file of that name is replaced. The name may have folders, and cannot lead
    out of the job.
    """
    stage = request.app[STAGE]
    wish = await bodies.take(request, _Wish)
    check_name(wish.name)
    job = await view.own_job(request)
    files = stage.filing.open(job.id)
    if job.status.terminal:
        raise JobAlreadyTerminal(job.id, job.status)
    url = await files.generate_presigned_url(wish.name, "PUT", wish.expires_in)
    return view.json(_link(request, stage, wish.name, "PUT", url, wish.expires_in, None), 201)


@routes.get(
    "/jobs/{job_id}/files/{file}",
    parameters=[_EXPIRES],
    answers={200: FileLink},
    problems={404: "no such job of yours, or it has no such file", **_PROBLEMS},
)
async def get(request: web.Request) -> web.Response:
    """Get a link to read a file of a job.

    `GET` its `url`. In the path the name is one part: a `/` in it is written `%2F`.
    """
    stage = request.app[STAGE]
    expires_s = parameters.seconds(request, _EXPIRES.name, MAX_LINK_S)
    if expires_s is None:
        expires_s = 3600.0
    elif not expires_s:
        raise parameters.bad(_EXPIRES.name, "seconds, more than 0", "0")
    files = await _files(request, stage)
    found = await _found(files, request.match_info["file"])
    url = await files.generate_presigned_url(found.name, "GET", expires_s)
    return view.json(_link(request, stage, found.name, "GET", url, expires_s, found.size))


@routes.get(
    "/jobs/{job_id}/values/{sha256}",
    answers={200: Any},
    problems={404: "no such job of yours, or no such value", 502: "it is not what was written", **_PROBLEMS},
)
async def value(request: web.Request) -> web.Response:
    """Get a large value of a job.

    Where a job shows `{"$offloaded": {"size": …, "sha256": …}}`, the value itself is here.
    """
    stage = request.app[STAGE]
    job = await view.own_job(request)
    return view.json(await stage.filing.value(job.id, request.match_info["sha256"]))


async def _found(files: TaskFiles, name: str) -> FileInfo:
    """The file of that name; what cannot be one is not there."""
    try:
        return await files.info(name)
    except BadFileName:
        raise FileMissing(name) from None


async def _files(request: web.Request, stage: Stage) -> TaskFiles:
    """The files of the job that the path names, if it is the asker's."""
    job = await view.own_job(request)
    return stage.filing.open(job.id)


def _link(
    request: web.Request, stage: Stage, name: str, method: str, url: str, expires_s: float, size: int | None
) -> FileLink:
    if url.startswith("/"):  # it leads to us, and nobody has said where people reach us: where they just did
        if not request.host.isascii():
            raise Problem(400, "malformed_request", "expected ASCII in the header Host")
        scheme = "https" if is_secure(request) else "http"
        url = f"{scheme}://{request.host}{url}"
    until = stage.clock.now() + timedelta(seconds=expires_s)
    return FileLink(
        name=name,
        method=method,
        url=url,
        expires_in=expires_s,
        expires_at=view.clock_of(stage.config)(until),
        size=size,
    )
