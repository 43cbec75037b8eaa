"""Places: whether files are still where they were opened."""

import os
from pathlib import Path

#: Device and inode: the same file, whatever it is called.
_Identity = tuple[int, int]


def real(path: Path) -> Path:
    """The file that a link leads to: what belongs to it lies beside it, whichever way somebody comes."""
    return path.resolve() if path.is_symlink() else path


def wal_of(path: Path) -> Path:
    """Where SQLite keeps what is not in the file yet."""
    return path.with_name(path.name + "-wal")


def lock_of(path: Path) -> Path:
    """The side file whose lock says who owns the file."""
    return path.with_name(path.name + ".lock")


class Places:
    """A database, its WAL and its lock, if it has one, by what cannot be given to another file.

    SQLite goes on writing to a file that has lost its name: all of that would be gone with the process. It goes on, too,
    when the file was emptied. And without the lock somebody else may write to the same file.
    """

    def __init__(self, path: Path, owner: int | None = None) -> None:
        """`owner` is the open lock file: its name may have been lost before we had the lock."""
        self._path = path
        self._known = {file: _identity(file) for file in (path, wal_of(path))}
        if owner is not None:
            lock = os.fstat(owner)
            self._known[lock_of(path)] = (lock.st_dev, lock.st_ino)

    def moved(self) -> str | None:
        """Which name leads to another file by now, or nowhere, in words; None: all is as it was."""
        for file, known in self._known.items():
            found = _identity(file)
            if found != known:
                return f"{file} {'is gone' if found is None else 'is another file by now'}"
        return f"{self._path} is empty by now" if _is_empty(self._path) else None


def _is_empty(file: Path) -> bool:
    """It has lost everything. That it is shorter means nothing: somebody else's VACUUM makes it so."""
    try:
        return not os.stat(file).st_size
    except OSError:
        return True


def _identity(file: Path) -> _Identity | None:
    try:
        found = os.stat(file)
    except OSError:  # whatever keeps us from seeing it keeps the next start from opening it
        return None
    return found.st_dev, found.st_ino
