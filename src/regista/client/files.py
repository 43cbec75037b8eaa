"""Files of jobs as typed calls. Content goes to and comes from wherever the orchestrator's links lead."""

import asyncio
import io
import os
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
from yarl import URL

from ..connection_errors import describe
from ..errors import BadFileName, Unreachable
from ..schemas.files import FileLink, FileObject
from ..schemas.jobs import JobObject
from .errors import error_from_response
from .transport import Transport, decode

#: Bytes of a piece that travels.
_CHUNK = 1024 * 1024
#: Silence after which a transfer counts as dead, and how long a connection may take.
_SILENCE_S, _CONNECT_S = 60.0, 5.0
#: What stands in a job in the place of a value that is too large to be shown.
_SHOWN = "$offloaded"

Content = bytes | str | os.PathLike[str] | AsyncIterable[bytes]
FileObjects = list[FileObject]


class Files:
    """`client.files`. The token is for the orchestrator alone: links need none, and lead anywhere."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, job_id: str) -> FileObjects:
        """The files of a job, by name."""
        return [file async for file in self._transport.pages(_path(job_id), {}, FileObject)]

    async def upload_url(self, job_id: str, name: str, expires_s: float = 3600.0) -> FileLink:
        """A link to write a file; JobAlreadyTerminal for a job that has ended."""
        body = {"name": name, "expires_in": expires_s}
        link: FileLink = decode(await self._transport.call("POST", _path(job_id), body), FileLink)
        return link

    async def download_url(self, job_id: str, name: str, expires_s: float = 3600.0) -> FileLink:
        """A link to read a file; FileMissing."""
        params = {"expires_in": f"{expires_s:g}"}
        answer = await self._transport.call("GET", _path(job_id, name), params=params)
        link: FileLink = decode(answer, FileLink)
        return link

    async def upload(self, job_id: str, source: Content, name: str = "") -> str:
        """Write a file of a job from a file here, bytes, or an iterator; returns its name.

        Without a `name` it is that of the file here.
        """
        if isinstance(source, str | os.PathLike):
            name = name or Path(source).name
        link = await self.upload_url(job_id, name)
        async with self._transfer(link, data=_data(source), headers=_length(source)):
            return link.name

    async def stream(self, job_id: str, name: str) -> AsyncIterator[bytes]:
        """The content of a file, in pieces."""
        link = await self.download_url(job_id, name)
        async with self._transfer(link) as answer:
            async for piece in answer.content.iter_chunked(_CHUNK):
                yield piece

    async def read(self, job_id: str, name: str) -> bytes:
        """The whole content of a file."""
        return b"".join([piece async for piece in self.stream(job_id, name)])

    async def download(self, job_id: str, name: str, target: str | os.PathLike[str] = "") -> Path:
        """Write a file of a job to a file here (a directory: under its own name); returns where it lies, whole."""
        place = _place(Path(target or "."), name)
        part = place.with_name(f".{uuid.uuid4().hex}.part")
        try:
            with part.open("wb") as file:
                async for piece in self.stream(job_id, name):
                    await asyncio.to_thread(file.write, piece)
            await asyncio.to_thread(os.replace, part, place)
        finally:
            part.unlink(missing_ok=True)
        return place

    async def value(self, job_id: str, sha256: str) -> Any:
        """A large value of a job, by the checksum that the job shows in its place."""
        path = f"/api/v1/jobs/{quote(job_id, safe='')}/values/{quote(sha256, safe='')}"
        return decode(await self._transport.call("GET", path), Any)

    async def fetch_offloaded(self, job_id: str, shown: Any) -> Any:
        """`shown` (a job's input, data or result) with every large value fetched."""
        if isinstance(shown, Mapping):
            told = shown.get(_SHOWN)
            if len(shown) == 1 and isinstance(told, Mapping):
                return await self.value(job_id, str(told.get("sha256", "")))
            return {key: await self.fetch_offloaded(job_id, each) for key, each in shown.items()}
        return shown

    async def result(self, job: JobObject) -> Any:
        """The result of a job, however large."""
        return await self.fetch_offloaded(job.id, job.result)

    @asynccontextmanager
    async def _transfer(
        self, link: FileLink, data: Any = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Follow a link, without anything that says who we are."""
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENCE_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
                session.request(
                    link.method,
                    URL(link.url, encoded=True),  # signed as it stands
                    data=data,
                    headers=headers,
                    skip_auto_headers=["Content-Type"],
                    ssl=self._transport.tls_for(link.url),
                ) as answer,
            ):
                if answer.status >= 400:
                    raise error_from_response(answer.status, await answer.read())
                yield answer
        except (aiohttp.ClientError, TimeoutError) as error:
            place = urlsplit(link.url)
            raise Unreachable(f"{place.scheme}://{place.netloc}", describe(error)) from error


def _place(target: Path, name: str) -> Path:
    """Where it goes: into a directory, under its own name."""
    return target / name.rpartition("/")[2] if target.is_dir() else target


def _data(source: Content) -> Any:
    if isinstance(source, str | os.PathLike):
        return _pieces(Path(source))
    return io.BytesIO(source) if isinstance(source, bytes) else source


def _length(source: Content) -> dict[str, str] | None:
    """S3 wants to know how much comes; of an iterator nobody knows."""
    if isinstance(source, str | os.PathLike):
        return {"Content-Length": str(Path(source).stat().st_size)}
    return None


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    # Opened and closed here, not in a thread: whoever is cut off while a thread does it leaves the file open.
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, _CHUNK):
            yield piece


def _path(job_id: str, name: str | None = None) -> str:
    if name in ("", ".", ".."):  # it would never get there: every program takes it for another path
        raise BadFileName(name, "it names no file")
    below = "" if name is None else "/" + quote(name, safe="")
    return f"/api/v1/jobs/{quote(job_id, safe='')}/files{below}"
