"""S3Service: files in a bucket of S3, or of any server that speaks its protocol."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import obstore
from obstore import exceptions
from obstore.store import S3Store

from ..config.payloads import PayloadSettings
from ..errors import BadFileName, FileMissing, PayloadUnavailable
from .base import CHUNK, FileInfo, Method

if TYPE_CHECKING:
    from obstore.store import S3Config

#: Silence after which a transfer counts as dead. The transfer itself may take as long as it takes.
_SILENCE_S = 120
_WHOLE_S = 24 * 3600
#: A request is tried again so often, and for so long.
_RETRIES, _RETRY_S = 3, 15
#: Parts of one upload that travel at once, and their size: what an upload may keep in memory.
_PARTS, _PART_BYTES = 2, 8 * 1024 * 1024
#: Paths in one request to delete.
_DELETED_AT_ONCE = 1000
#: Errors that say something about us or about the file; all others mean that the store is away.
_REFUSED = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.NotSupportedError,
)


class S3Service:
    """Files in a bucket. It signs URLs, so that clients and browsers come to it directly.

    At most `concurrency` reads and as many writes at once, so that a crowd of tasks runs out of neither
    connections nor file descriptors. They are counted apart: whoever copies from one file to another holds
    one of each, and must not wait for himself.
    """

    signs = True

    def __init__(self, bucket: str, prefix: str, config: PayloadSettings) -> None:
        """Without S3_ACCESS_KEY the credentials are found where AWS programs find them."""
        store = S3Store(
            bucket,
            prefix=prefix or None,
            config=_config(config),
            client_options={
                "timeout": timedelta(seconds=_WHOLE_S),
                "read_timeout": timedelta(seconds=_SILENCE_S),
                "connect_timeout": timedelta(seconds=5),
                "allow_http": config.s3_endpoint_url.startswith("http:"),
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
        )
        root = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
        self._place = f"the bucket {bucket!r} at {config.s3_endpoint_url or 'AWS'}"
        self._store = store
        #: The URI of the store's own root, without a slash at its end.
        self._root = root.rstrip("/")
        self._reads = asyncio.Semaphore(config.s3_max_concurrency)
        self._writes = asyncio.Semaphore(config.s3_max_concurrency)

    async def start(self) -> None:
        """Look whether the bucket is there, and whether we may look into it."""
        try:
            await self._folders("none")
        except (FileMissing, PayloadUnavailable) as error:
            why = f"{self._place} cannot be used; is it there, and are key and secret right? {error}"
            raise PayloadUnavailable(why) from error

    def with_own_limits(self, concurrency: int) -> "S3Service":
        """The same store with turns of its own; see `PayloadStore.with_own_limits`."""
        other = copy.copy(self)
        other._reads = asyncio.Semaphore(concurrency)
        other._writes = asyncio.Semaphore(concurrency)
        return other

    # -- writing ---------------------------------------------------------------------------------

    async def put(self, path: str, content: bytes | Path | AsyncIterable[bytes]) -> None:
        """Write a file; see `PayloadStore.put`."""
        async with self._writes:
            if isinstance(content, bytes | Path):
                await self._put(path, content)
                return
            source = _Source(content)
            try:
                await self._put(path, source)
            except asyncio.CancelledError:
                raise
            except BaseException:
                if source.error is not None:  # its own trouble, not the store's
                    raise source.error from None
                raise

    async def _put(self, path: str, content: Any) -> None:
        try:
            with _translated(path):
                await obstore.put_async(
                    self._store, path, content, chunk_size=_PART_BYTES, max_concurrency=_PARTS
                )
        except FileMissing:
            if isinstance(content, Path) and not content.exists():
                raise FileMissing(str(content)) from None
            # What is missing is the place to put it: the bucket, or an upload that the store gave up.
            raise PayloadUnavailable(
                f"{path}: the payload store has lost the upload, or its bucket"
            ) from None

    async def delete(self, paths: Iterable[str]) -> None:
        """Remove these files; see `PayloadStore.delete`."""
        listed = list(paths)
        for start in range(0, len(listed), _DELETED_AT_ONCE):
            async with self._writes:
                await self._delete(listed[start : start + _DELETED_AT_ONCE])

    async def clear(self, prefix: str) -> int:
        """Remove everything below a prefix; see `PayloadStore.clear`."""
        done, some = 0, []
        async for each in self.files(prefix):
            some.append(each.name)
            if len(some) == _DELETED_AT_ONCE:
                await self.delete(some)
                done, some = done + len(some), []
        await self.delete(some)
        return done + len(some)

    async def _delete(self, paths: Sequence[str]) -> None:
        try:
            with _translated(paths[0]):
                await obstore.delete_async(self._store, paths)
        except FileMissing:
            # One of them was gone, and the rest may be left: some stores end there.
            for path in paths if len(paths) > 1 else ():
                await self._delete([path])

    # -- reading ---------------------------------------------------------------------------------

    async def get(self, path: str) -> bytes:
        """The whole file; see `PayloadStore.get`."""
        async with self._reads:
            with _translated(path):
                found = await obstore.get_async(self._store, path)
                return bytes(await found.bytes_async())

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """The file in pieces; see `PayloadStore.stream`."""
        async with self._reads:
            with _translated(path):
                found = await obstore.get_async(self._store, path)
                pieces = aiter(found.stream(min_chunk_size=CHUNK))
            while True:
                with _translated(path):
                    try:
                        piece = await anext(pieces)
                    except StopAsyncIteration:
                        return
                yield bytes(piece)

    async def find(self, path: str) -> FileInfo | None:
        """What is known of a file; see `PayloadStore.find`."""
        async with self._reads:
            try:
                with _translated(path):
                    return _info(await obstore.head_async(self._store, path))
            except FileMissing:
                return None

    async def files(self, prefix: str) -> AsyncIterator[FileInfo]:
        """The files below a prefix; see `PayloadStore.files`."""
        async with self._reads:
            with _translated(prefix):
                pages = aiter(obstore.list(self._store, prefix, chunk_size=1000))
            while True:
                try:
                    with _translated(prefix):
                        page = await anext(pages)
                except (StopAsyncIteration, FileMissing):
                    return
                for meta in page:
                    yield _info(meta)

    async def folders(self, prefix: str) -> list[str]:
        """The folders right below a prefix; see `PayloadStore.folders`."""
        try:
            return await self._folders(prefix)
        except FileMissing:
            return []

    async def _folders(self, prefix: str) -> list[str]:
        async with self._reads:
            with _translated(prefix):
                found = await obstore.list_with_delimiter_async(self._store, prefix)
        return sorted(each.rstrip("/").rpartition("/")[2] for each in found["common_prefixes"])

    # -- names -----------------------------------------------------------------------------------

    async def sign(self, path: str, method: Method, expires_s: float) -> str:
        """A URL for one file; see `PayloadStore.sign`."""
        with _translated(path):
            signer = cast(Any, self._store)
            return await obstore.sign_async(signer, method, path, timedelta(seconds=expires_s))

    def uri(self, path: str) -> str:
        """The name of the file for other programs; see `PayloadStore.uri`."""
        return f"{self._root}/{path}"

    def path_of(self, uri: str) -> str | None:
        """The path that a URI names; see `PayloadStore.path_of`."""
        head = f"{self._root}/"
        return uri[len(head) :] if uri.startswith(head) else None


class _Source:
    """Pieces on their way up, never more than one part at once. Remembers what went wrong on this side."""

    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._pieces = aiter(pieces)
        self.error: BaseException | None = None

    def __aiter__(self) -> "_Source":
        return self

    async def __anext__(self) -> bytes:
        try:
            # An empty piece would be taken for the end.
            while not (piece := bytes(await anext(self._pieces))):
                pass
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self.error = error
            raise
        return piece


def _info(meta: Any) -> FileInfo:
    return FileInfo(meta["path"], meta["size"], meta["last_modified"], meta["e_tag"])


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    """The library's errors, as ours."""
    try:
        yield
    except (exceptions.NotFoundError, FileNotFoundError):
        raise FileMissing(path) from None
    except exceptions.InvalidPathError as error:
        raise BadFileName(path, _words(error)) from None
    except _REFUSED as error:
        raise PayloadUnavailable(f"{path}: the payload store refuses us: {_words(error)}") from error
    except (exceptions.BaseError, OSError) as error:
        raise PayloadUnavailable(f"{path}: the payload store is away: {_words(error)}") from error
    except ValueError as error:  # a path that the library cannot even read
        raise BadFileName(path, _words(error)) from None


def _words(error: Exception) -> str:
    """The first line of what the library says; the rest is its own record of the request."""
    return str(error).strip().partition("\n")[0][:500]


def _config(config: PayloadSettings) -> "S3Config":
    known: S3Config = {"region": config.s3_region, "virtual_hosted_style_request": not config.s3_endpoint_url}
    if config.s3_endpoint_url:
        known["endpoint"] = config.s3_endpoint_url.rstrip("/")
    if config.s3_access_key:
        known["access_key_id"] = config.s3_access_key
        known["secret_access_key"] = config.s3_secret_key
    return known
