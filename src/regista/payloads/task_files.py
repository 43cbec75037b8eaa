"""TaskFiles: the files of one job, for the functions and handlers that work on it."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ..errors import BadFileName, FileMissing, PayloadsDisabled
from .base import FileInfo, Method, PayloadStore, check_name, job_prefix

T = TypeVar("T")


class TaskFilesProvider(Protocol):
    """Hands out the files of jobs, and takes back what they left on this machine."""

    def open(self, job_id: str, attempt_id: str = "") -> "TaskFiles":
        """The files of a job, for one attempt at a task (or, without one, for its handlers)."""
        ...

    def remove_local(self, job_id: str, attempt_id: str = "") -> None:
        """Remove the local directory of an attempt, or everything of a job. What is not there is fine."""
        ...

    async def compare(self, home: str, uri: str, owner: str) -> None:
        """Hear which payload store an orchestrator uses. Never raises; says loudly when it is not ours."""
        ...


class TaskFiles:
    """The files of one job. Names are the job's own: no name leads to the files of another.

    They lie in the payload store under `jobs/{job_id}/` until the job ends; all attempts, handlers and the
    client see the same ones. `path` is a directory on this machine for whatever needs real files; it is
    empty at first and gone when the attempt (in a handler: the job) is over.

    Async functions await the methods. A plain function, which runs in a thread, uses their `_sync` twins.
    """

    def __init__(
        self,
        store: PayloadStore,
        job_id: str,
        folder: Callable[[], Path],
        clean: Callable[[], None] = lambda: None,
        sign: Callable[[str, str, Method, float], str] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`sign` makes URLs where the store cannot; `loop` is where the store lives, for the sync twins."""
        self.job_id = job_id
        self._store = store
        self._prefix = job_prefix(job_id)
        self._folder = folder
        self._clean = clean
        self._sign = sign
        self._loop = loop

    # -- on this machine -------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """A directory on this machine, for this attempt alone."""
        return self._folder()

    def get_root(self) -> Path:
        """The same, as the documents call it."""
        return self.path

    def path_to(self, name: str) -> Path:
        """Where a file of this name lies, or shall lie, on this machine. Its directory is there."""
        target = self.path / check_name(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    async def download(self, name_or_uri: str, local_name: str | None = None) -> Path:
        """Fetch a file to this machine; returns where it lies, whole."""
        name = self._name_of(name_or_uri)
        target = self.path_to(local_name or name)
        part = target.with_name(f".{uuid.uuid4().hex}.part")
        try:
            await self._fetch(name, part)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
        return target

    async def _fetch(self, name: str, part: Path) -> None:
        # Opened and closed here, not in a thread: a task that is cancelled meanwhile would leave the file open.
        with part.open("wb") as file:
            async for piece in self.stream(name):
                await asyncio.to_thread(file.write, piece)

    async def upload(self, local_name: str | Path, remote_name: str | None = None) -> str:
        """Store a file of this machine; returns its URI. Without a `remote_name` it keeps its name."""
        source = Path(local_name)
        if not source.is_absolute():
            source = self.path / check_name(str(local_name))
        name = check_name(remote_name or self._own_name(source))
        if not source.is_file():
            raise FileMissing(str(local_name))
        await self._store.put(self._at(name), source)
        return self.uri(name)

    async def upload_dir(self, local_name: str | Path = "", remote_name: str = "") -> list[str]:
        """Store every file below a directory of this machine, under the same names; returns their URIs."""
        root = Path(local_name) if Path(local_name).is_absolute() else self.path / local_name
        head = f"{check_name(remote_name)}/" if remote_name else ""
        files = sorted(each for each in root.rglob("*") if each.is_file())
        return [await self.upload(each, head + each.relative_to(root).as_posix()) for each in files]

    def _own_name(self, source: Path) -> str:
        """Below the directory of this attempt: its place there; elsewhere: just its name."""
        with contextlib.suppress(ValueError):
            return source.relative_to(self.path).as_posix()
        return source.name

    async def cleanup(self) -> None:
        """Remove the directory on this machine now. It is made anew when it is asked for."""
        await asyncio.to_thread(self._clean)

    # -- in the store ----------------------------------------------------------------------------

    async def stream(self, name: str) -> AsyncIterator[bytes]:
        """The file in pieces of about a megabyte, however large it is."""
        try:
            async for piece in self._store.stream(self._at(check_name(name))):
                yield piece
        except FileMissing:
            raise FileMissing(name) from None

    async def upload_stream(self, name: str, pieces: AsyncIterable[bytes]) -> str:
        """Store what an iterator gives, as it comes; returns the URI. If it fails, nothing is stored."""
        await self._store.put(self._at(check_name(name)), pieces)
        return self.uri(name)

    async def read(self, name: str) -> bytes:
        """The whole file."""
        try:
            return await self._store.get(self._at(check_name(name)))
        except FileMissing:
            raise FileMissing(name) from None

    async def write(self, name: str, content: bytes) -> str:
        """Store these bytes; returns the URI."""
        await self._store.put(self._at(check_name(name)), content)
        return self.uri(name)

    async def read_text(self, name: str) -> str:
        """The whole file, as UTF-8."""
        return (await self.read(name)).decode()

    async def write_text(self, name: str, text: str) -> str:
        """Store text as UTF-8; returns the URI."""
        return await self.write(name, text.encode())

    async def read_json(self, name: str) -> Any:
        """The whole file, as JSON."""
        return msgspec.json.decode(await self.read(name))

    async def write_json(self, name: str, value: Any) -> str:
        """Store a value as JSON; returns the URI."""
        return await self.write(name, msgspec.json.encode(value))

    async def list(self, prefix: str = "") -> Sequence[FileInfo]:
        """The files of this job (below a folder, if one is named), by name."""
        below = self._at(check_name(prefix)) if prefix else self._prefix
        skip = len(self._prefix) + 1
        found = [
            msgspec.structs.replace(each, name=each.name[skip:]) async for each in self._store.files(below)
        ]
        return sorted(found, key=lambda each: each.name)

    async def exists(self, name: str) -> bool:
        """There is a file of this name."""
        return await self._store.find(self._at(check_name(name))) is not None

    async def info(self, name: str) -> FileInfo:
        """Size and age of a file; FileMissing."""
        found = await self._store.find(self._at(check_name(name)))
        if found is None:
            raise FileMissing(name)
        return msgspec.structs.replace(found, name=name)

    async def delete(self, *names: str) -> None:
        """Remove files of this job. What is not there is fine."""
        await self._store.delete([self._at(check_name(name)) for name in names])

    async def generate_presigned_url(
        self, name: str, method: Method = "GET", expires_s: float = 3600.0
    ) -> str:
        """A URL that lets whoever has it read (GET) or write (PUT) this one file for a while."""
        check_name(name)
        if self._store.signs:
            return await self._store.sign(self._at(name), method, expires_s)
        if self._sign is None:
            raise PayloadsDisabled(
                "this payload store cannot sign URLs, and only the orchestrator serves its files: ask it for one"
            )
        return self._sign(self.job_id, name, method, expires_s)

    def uri(self, name: str) -> str:
        """The name of the file for other programs, like s3://bucket/jobs/j1/a.txt."""
        return self._store.uri(self._at(check_name(name)))

    # -- names of the documents ------------------------------------------------------------------

    download_file = download
    upload_file = upload

    # -- for plain functions ---------------------------------------------------------------------

    def download_sync(self, name_or_uri: str, local_name: str | None = None) -> Path:
        """See `download`."""
        return self._wait(self.download(name_or_uri, local_name))

    def upload_sync(self, local_name: str | Path, remote_name: str | None = None) -> str:
        """See `upload`."""
        return self._wait(self.upload(local_name, remote_name))

    def read_sync(self, name: str) -> bytes:
        """See `read`."""
        return self._wait(self.read(name))

    def write_sync(self, name: str, content: bytes) -> str:
        """See `write`."""
        return self._wait(self.write(name, content))

    def read_text_sync(self, name: str) -> str:
        """See `read_text`."""
        return self._wait(self.read_text(name))

    def write_text_sync(self, name: str, text: str) -> str:
        """See `write_text`."""
        return self._wait(self.write_text(name, text))

    def read_json_sync(self, name: str) -> Any:
        """See `read_json`."""
        return self._wait(self.read_json(name))

    def write_json_sync(self, name: str, value: Any) -> str:
        """See `write_json`."""
        return self._wait(self.write_json(name, value))

    def list_sync(self, prefix: str = "") -> Sequence[FileInfo]:
        """See `list`."""
        return self._wait(self.list(prefix))

    def exists_sync(self, name: str) -> bool:
        """See `exists`."""
        return self._wait(self.exists(name))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            inside = asyncio.get_running_loop() is not None
        except RuntimeError:
            inside = False
        if inside or self._loop is None:
            work.close()
            raise RuntimeError("the _sync methods are for plain functions; an async one awaits the others")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # -- places ----------------------------------------------------------------------------------

    def _at(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _name_of(self, name_or_uri: str) -> str:
        """The name, also from a URI of this store; one that leads to another job is refused."""
        if "://" not in name_or_uri:
            return check_name(name_or_uri)
        path = self._store.path_of(name_or_uri)
        if path is None or not path.startswith(f"{self._prefix}/"):
            raise BadFileName(name_or_uri, "it is not a file of this job")
        return check_name(path[len(self._prefix) + 1 :])

    def __repr__(self) -> str:
        return f"TaskFiles(job_id={self.job_id!r})"
