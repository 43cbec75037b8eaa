"""Who owns a SQLite store: one process, by the lock of a file beside it."""

import asyncio
import fcntl
import logging
import os
import time
from pathlib import Path

from ...errors import StorageOwned
from ...places import lock_of

log = logging.getLogger("regista.storage")

#: When a start says that it waits for a predecessor to leave: most are gone by then.
_TELL_AFTER_S = 1.0


async def acquire_lock(path: Path, patience_s: float) -> int:
    """Take the side file's lock, waiting for a predecessor to leave."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(lock_of(path), os.O_RDWR | os.O_CREAT, 0o600)
    began = time.monotonic()
    told = False
    try:
        while not _locked(handle):
            waited = time.monotonic() - began
            if not told and waited >= _TELL_AFTER_S:
                told = True
                words = "%s: waiting for pid %s to let go of it, for %.0f s at most"
                log.warning(words, path, _owner(handle), patience_s, extra={"action": "store_taken"})
            if waited >= patience_s:
                owner = _owner(handle)
                whose = "this very process" if owner == str(os.getpid()) else f"another process (pid {owner})"
                raise StorageOwned(
                    f"{path} is owned by {whose}. One orchestrator owns a SQLite store: stop the other one, "
                    "or give this one another path."
                )
            await asyncio.sleep(0.05)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        return handle
    except BaseException:
        os.close(handle)
        raise


def _owner(handle: int) -> str:
    """The pid of whoever has the lock, as it wrote it down."""
    return os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
