"""Files of jobs over HTTP: list them, make links to read and write them, and read large values.

Content never passes through these operations: a link leads to the payload store itself, or, where that cannot sign
links, to `file_transfer`.
"""

from typing import Any

from aiohttp import web
from msgspec import Struct

from ..schemas.files import MAX_LINK_S, FileLink, FileObject, Seconds, UploadRequest
from ..schemas.pages import Page, encode_position
from ..services.files import SignedLink
from . import bodies, parameters, view
from .callers import caller_of
from .network import is_secure
from .parameters import NEXT, Parameter, page_limit
from .problems import Problem
from .routes import RouteTable
from .stage import STAGE

routes = RouteTable("files")

_PROBLEMS = {501: "no payload store is configured", 503: "the payload store is away"}
_LIMIT = page_limit(1000)
_NOT_YOURS = "no such job of yours"
_EXPIRES = Parameter(
    name="expires_in",
    words="Seconds for which the link shall be good.",
    schema={"type": "number", "exclusiveMinimum": 0, "maximum": MAX_LINK_S, "default": 3600},
)


class FileRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A UploadRequest without the pattern of the name: the service says better what is wrong with one."""

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
    page = await stage.services.files.list_page(
        caller_of(request), request.match_info["job_id"], after, limit
    )
    show = view.clock_of(stage.config)
    items = [
        FileObject(name=each.name, size=each.size, modified=show(each.modified), etag=each.etag)
        for each in page.files
    ]
    return view.json(Page[Any](items, None if page.end is None else encode_position(page.end)))


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
    files = request.app[STAGE].services.files
    body = await bodies.take(request, FileRequest)
    link = await files.upload_link(
        caller_of(request), request.match_info["job_id"], body.name, body.expires_in
    )
    return view.json(_link_view(request, link), 201)


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
    files = request.app[STAGE].services.files
    expires_s = parameters.seconds(request, _EXPIRES.name, MAX_LINK_S)
    if expires_s is None:
        expires_s = 3600.0
    elif not expires_s:
        raise parameters.bad(_EXPIRES.name, "seconds, more than 0", "0")
    job_id, name = request.match_info["job_id"], request.match_info["file"]
    link = await files.download_link(caller_of(request), job_id, name, expires_s)
    return view.json(_link_view(request, link))


@routes.get(
    "/jobs/{job_id}/values/{sha256}",
    answers={200: Any},
    problems={404: "no such job of yours, or no such value", 502: "it is not what was written", **_PROBLEMS},
)
async def value(request: web.Request) -> web.Response:
    """Get a large value of a job.

    Where a job shows `{"$offloaded": {"size": …, "sha256": …}}`, the value itself is here.
    """
    files, job_id = request.app[STAGE].services.files, request.match_info["job_id"]
    return view.json(await files.value(caller_of(request), job_id, request.match_info["sha256"]))


def _link_view(request: web.Request, link: SignedLink) -> FileLink:
    url = link.url
    if url.startswith("/"):  # it leads to us, and no public URL is configured: use the one of this request
        if not request.host.isascii():
            raise Problem(400, "malformed_request", "expected ASCII in the header Host")
        scheme = "https" if is_secure(request) else "http"
        url = f"{scheme}://{request.host}{url}"
    show = view.clock_of(request.app[STAGE].config)
    return FileLink(
        name=link.name,
        method=link.method,
        url=url,
        expires_in=link.expires_s,
        expires_at=show(link.expires_at),
        size=link.size,
    )
