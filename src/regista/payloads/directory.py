"""DirectoryPayloads: files in a directory of this machine, or of a disk that several share. Needs no library."""

import asyncio
import contextlib
import copy
import errno
import os
import shlex
import shutil
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

from ..errors import BadFileName, ConfigError, FileMissing, PayloadUnavailable
from .base import CHUNK, FileInfo, Method, PayloadStore

T = TypeVar("T")

#: Stands in the name of a file that is not whole yet; no name of a file has it.
_PARTIAL = "#"
#: Another process may remove an empty folder between its making and the first file in it.
_TRIES = 5
#: How the operating system says that a path leads to no file.
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError)
_BAD_PATH = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)


class DirectoryPayloads:
    """Files below a directory. Each is written beside its place, flushed, and moved there whole.

    At most `concurrency` reads and as many writes run at once. They are counted apart: a copy from one file to
    another holds one of each, and must not wait for itself.
    """

    signs = False

    def __init__(self, directory: str | Path, concurrency: int = 100) -> None:
        self._directory = Path(directory).absolute()
        try:
            self._directory.mkdir(exist_ok=True)  # and none above it: a mistyped path would be as good as any
        except FileNotFoundError:
            advice = f"`mkdir -p {shlex.quote(str(self._directory))}` makes it"
            expected = f"a directory, or a new one in a directory that exists ({advice})"
            raise ConfigError("REGISTA_PAYLOADS", expected, f"file:{self._directory}") from None
        except OSError as error:
            raise PayloadUnavailable(
                f"cannot use the directory {self._directory}: {error.strerror}"
            ) from error
        self._root = self._directory.as_uri()
        self._reads = asyncio.Semaphore(concurrency)
        self._writes = asyncio.Semaphore(concurrency)

    async def start(self) -> None:
        """See `PayloadStore.start`."""
        await self._run("", lambda: self._folders(""))

    def with_own_limits(self, concurrency: int) -> PayloadStore:
        """See `PayloadStore.with_own_limits`."""
        other = copy.copy(self)
        other._reads = asyncio.Semaphore(concurrency)
        other._writes = asyncio.Semaphore(concurrency)
        return other

    # -- writing ---------------------------------------------------------------------------------

    async def put(self, path: str, content: bytes | Path | AsyncIterable[bytes]) -> None:
        """See `PayloadStore.put`. BadFileName where a disk cannot have it: a name is a file or a folder, never both."""
        async with self._writes:
            if isinstance(content, Path) and not await asyncio.to_thread(content.is_file):
                raise FileMissing(str(content))
            file, partial = await self._write(path, lambda: self._open_partial(path))
            try:
                if isinstance(content, bytes):
                    await self._write(path, lambda: file.write(content))
                elif isinstance(content, Path):
                    await self._write(path, lambda: _copy(content, file))
                else:
                    async for piece in content:
                        data = bytes(piece)
                        await self._write(path, lambda data=data: file.write(data))  # type: ignore[misc]
                await self._write(path, lambda: self._finish(file, partial, path))
            except BaseException:
                file.close()
                partial.unlink(missing_ok=True)
                raise

    def _open_partial(self, path: str) -> tuple[BinaryIO, Path]:
        target = self._directory / path
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder", str(target))
        partial = target.with_name(f"{target.name}{_PARTIAL}{uuid.uuid4().hex[:8]}")
        for _ in range(_TRIES):
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                return open(partial, "xb"), partial
        raise FileNotFoundError(errno.ENOENT, "the folder is removed again and again", str(target.parent))

    def _finish(self, file: BinaryIO, partial: Path, path: str) -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()
        os.replace(partial, self._directory / path)

    async def _write(self, path: str, work: Callable[[], T]) -> T:
        try:
            return await self._run(path, work)
        except FileMissing:
            problem = await asyncio.to_thread(self._in_the_way, path)
            if problem:
                raise BadFileName(_own_name(path), problem) from None
            raise PayloadUnavailable(f"{path}: the payload store has lost the folder") from None

    def _in_the_way(self, path: str) -> str:
        target = self._directory / path
        if target.is_dir():
            return "there are files below it"
        for above in target.parents:
            if above == self._directory:
                break
            if above.is_file():
                return (
                    f"{_own_name(above.relative_to(self._directory).as_posix())!r} is a file, and no folder"
                )
        return ""

    async def delete(self, paths: Iterable[str]) -> None:
        """See `PayloadStore.delete`."""
        listed = list(paths)
        async with self._writes:
            await self._run(listed[0] if listed else "", lambda: self._remove_all(listed))

    def _remove_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._remove(path)

    def _remove(self, path: str) -> None:
        target = self._directory / path
        with contextlib.suppress(*_NO_FILE):
            if not target.is_dir():
                target.unlink()
        for above in target.parents:
            if above == self._directory:
                break
            try:
                above.rmdir()
            except OSError:  # it is not empty, or not there
                break

    async def clear(self, prefix: str) -> int:
        """See `PayloadStore.clear`. Takes along half a file of a killed process, which is in no list."""
        async with self._writes:
            return await self._run(prefix, lambda: self._clear(prefix))

    def _clear(self, prefix: str) -> int:
        folder = self._directory / prefix
        found = sum(1 for _ in self._walk(folder))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            shutil.rmtree(folder)
        return found

    # -- reading ---------------------------------------------------------------------------------

    async def get(self, path: str) -> bytes:
        """See `PayloadStore.get`."""
        async with self._reads:
            return await self._run(path, (self._directory / path).read_bytes)

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """See `PayloadStore.stream`."""
        async with self._reads:
            file = await self._run(path, lambda: (self._directory / path).open("rb"))
            try:
                while piece := await self._run(path, lambda: file.read(CHUNK)):
                    yield piece
            finally:
                file.close()

    async def find(self, path: str) -> FileInfo | None:
        """See `PayloadStore.find`."""
        async with self._reads:
            try:
                return await self._run(path, lambda: self._info(path))
            except FileMissing:
                return None

    def _info(self, path: str) -> FileInfo:
        target = self._directory / path
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder", str(target))
        return _info_of(path, target.stat())

    async def files(self, prefix: str) -> AsyncIterator[FileInfo]:
        """See `PayloadStore.files`."""
        async with self._reads:
            found = await self._run(prefix, lambda: list(self._walk(self._directory / prefix)))
        for each in found:
            yield each

    def _walk(self, folder: Path) -> Iterator[FileInfo]:
        for above, _, names in os.walk(folder):
            for name in names:
                target = Path(above, name)
                if _PARTIAL in name:
                    continue
                # Removed meanwhile, or no name that anybody can have given.
                with contextlib.suppress(FileNotFoundError, UnicodeEncodeError):
                    path = target.relative_to(self._directory).as_posix()
                    path.encode()
                    yield _info_of(path, target.stat())

    async def folders(self, prefix: str) -> list[str]:
        """See `PayloadStore.folders`."""
        async with self._reads:
            try:
                return await self._run(prefix, lambda: self._folders(prefix))
            except FileMissing:
                return []

    def _folders(self, prefix: str) -> list[str]:
        with os.scandir(self._directory / prefix) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    # -- names -----------------------------------------------------------------------------------

    async def sign(self, path: str, method: Method, expires_s: float) -> str:
        """A directory signs nothing; the orchestrator serves its own links."""
        raise NotImplementedError

    def uri(self, path: str) -> str:
        """See `PayloadStore.uri`."""
        return f"{self._root}/{path}"

    def path_of(self, uri: str) -> str | None:
        """See `PayloadStore.path_of`."""
        head = f"{self._root}/"
        return uri[len(head) :] if uri.startswith(head) else None

    async def _run(self, path: str, work: Callable[[], T]) -> T:
        """Run blocking work in a thread. A caller that is cancelled waits for its end: it uses an open file."""
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise
        except _NO_FILE:
            raise FileMissing(path) from None
        except OSError as error:
            words = error.strerror or str(error)
            if error.errno in _BAD_PATH:
                raise BadFileName(_own_name(path), words) from None
            raise PayloadUnavailable(f"{path}: the payload store is away: {words}") from error
        except ValueError as error:  # a path with a NUL, or with half of a surrogate pair
            raise BadFileName(_own_name(path), str(error)) from None


def _info_of(path: str, found: os.stat_result) -> FileInfo:
    modified = datetime.fromtimestamp(found.st_mtime, UTC)
    return FileInfo(path, found.st_size, modified, f"{found.st_mtime_ns:x}-{found.st_size:x}")


def _copy(source: Path, into: BinaryIO) -> None:
    with open(source, "rb") as file:
        shutil.copyfileobj(file, into, CHUNK)


def _own_name(path: str) -> str:
    """`a/b` of `jobs/j1/a/b`: what people called it."""
    return path.split("/", 2)[-1]
