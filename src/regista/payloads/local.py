"""LocalPayloads: files in a directory of this machine, or of a disk that several share."""

import asyncio
import shutil
from pathlib import Path

from obstore.store import LocalStore

from ..errors import PayloadUnavailable
from .objects import ObjectPayloads


class LocalPayloads(ObjectPayloads):
    """Files below a directory. Written beside their place and moved there whole."""

    def __init__(self, directory: str | Path, concurrency: int = 100) -> None:
        self._directory = Path(directory).absolute()
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PayloadUnavailable(
                f"cannot use the directory {self._directory}: {error.strerror}"
            ) from error
        store = LocalStore(self._directory, automatic_cleanup=True)
        super().__init__(store, self._directory.as_uri(), concurrency)

    async def clear(self, prefix: str) -> int:
        """Remove a directory with everything in it: half a file of a killed process too, which nobody lists."""
        done = await super().clear(prefix)
        await asyncio.to_thread(shutil.rmtree, self._directory / prefix, ignore_errors=True)
        return done
