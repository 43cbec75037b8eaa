"""LocalPayloads: files in a directory of this machine, or of a disk that several share."""

import asyncio
import shlex
import shutil
from collections.abc import AsyncIterable
from pathlib import Path

from obstore.store import LocalStore

from ..errors import BadFileName, ConfigError, PayloadUnavailable
from .objects import ObjectPayloads


class LocalPayloads(ObjectPayloads):
    """Files below a directory. Written beside their place and moved there whole."""

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
        store = LocalStore(self._directory, automatic_cleanup=True)
        super().__init__(store, self._directory.as_uri(), concurrency)

    async def put(self, path: str, content: bytes | Path | AsyncIterable[bytes]) -> None:
        """Write a file; BadFileName where a disk cannot have it: a name is a file or a folder, and never both."""
        try:
            await super().put(path, content)
        except PayloadUnavailable:
            problem = await asyncio.to_thread(self._in_the_way, path)
            if problem:
                raise BadFileName(_own_name(path), problem) from None
            raise

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

    async def clear(self, prefix: str) -> int:
        """Remove a directory with everything in it: half a file of a killed process too, which nobody lists."""
        done = await super().clear(prefix)
        await asyncio.to_thread(shutil.rmtree, self._directory / prefix, ignore_errors=True)
        return done


def _own_name(path: str) -> str:
    """`a/b` of `jobs/j1/a/b`: what people called it."""
    return path.split("/", 2)[-1]
