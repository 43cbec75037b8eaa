"""MemoryPayloads: files in this process. The reference, for tests and for trying things out; needs no library."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from ..errors import FileMissing, PayloadsDisabled
from .base import CHUNK, FileInfo, Method

_ROOT = "memory://"


class MemoryPayloads:
    """Files in memory. They are gone with the process, and no other process sees them."""

    signs = False

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, datetime]] = {}

    async def start(self) -> None:
        """Nothing can be wrong with it."""

    def with_own_limits(self, concurrency: int) -> "MemoryPayloads":
        """Nobody takes turns here; see `PayloadStore.with_own_limits`."""
        return self

    async def put(self, path: str, content: bytes | Path | AsyncIterable[bytes]) -> None:
        """Write a file; see `PayloadStore.put`."""
        if isinstance(content, Path):
            body = _read(content)
        elif isinstance(content, bytes):
            body = content
        else:
            body = b"".join([bytes(piece) async for piece in content])
        self._files[path] = (body, datetime.now(UTC))

    async def get(self, path: str) -> bytes:
        """The whole file; see `PayloadStore.get`."""
        if path not in self._files:
            raise FileMissing(path)
        return self._files[path][0]

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """The file in pieces; see `PayloadStore.stream`."""
        body = await self.get(path)
        for start in range(0, len(body), CHUNK):
            yield body[start : start + CHUNK]

    async def find(self, path: str) -> FileInfo | None:
        """What is known of a file; see `PayloadStore.find`."""
        return self._info(path) if path in self._files else None

    async def files(self, prefix: str) -> AsyncIterator[FileInfo]:
        """The files below a prefix; see `PayloadStore.files`."""
        for path in [each for each in self._files if each.startswith(f"{prefix}/")]:
            yield self._info(path)

    async def folders(self, prefix: str) -> list[str]:
        """The folders right below a prefix; see `PayloadStore.folders`."""
        below = [each[len(prefix) + 1 :] for each in self._files if each.startswith(f"{prefix}/")]
        return sorted({each.partition("/")[0] for each in below if "/" in each})

    async def delete(self, paths: Iterable[str]) -> None:
        """Remove these files; see `PayloadStore.delete`."""
        for path in paths:
            self._files.pop(path, None)

    async def clear(self, prefix: str) -> int:
        """Remove everything below a prefix; see `PayloadStore.clear`."""
        paths = [each.name async for each in self.files(prefix)]
        await self.delete(paths)
        return len(paths)

    async def sign(self, path: str, method: Method, expires_s: float) -> str:
        """It cannot: there is nowhere to lead to."""
        raise PayloadsDisabled("files in memory have no address of their own")

    def uri(self, path: str) -> str:
        """The name of the file for other programs; see `PayloadStore.uri`."""
        return f"{_ROOT}/{path}"

    def path_of(self, uri: str) -> str | None:
        """The path that a URI names; see `PayloadStore.path_of`."""
        return uri[len(_ROOT) + 1 :] if uri.startswith(f"{_ROOT}/") else None

    def _info(self, path: str) -> FileInfo:
        body, modified = self._files[path]
        return FileInfo(path, len(body), modified, sha256(body).hexdigest()[:32])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise FileMissing(str(path)) from None
