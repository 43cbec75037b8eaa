"""Which files a SQLite store refuses to open, before anything in them is changed."""

import sqlite3
from pathlib import Path

from ...errors import SchemaError, StorageError
from ...places import wal_of

#: Tables of every version. A database that has others, and not these, is somebody else's.
_OURS = frozenset({"jobs", "tasks", "outbox"})
#: Files up to this size are looked through after a crash, about a second for each gigabyte. A larger one would be missed
#: for too long.
_LOOKED_THROUGH_BYTES = 4 << 30


def check_wal_has_file(path: Path) -> None:
    """StorageError where a WAL has lost its file: SQLite would drop it, and the newest jobs with it."""
    wal = wal_of(path)
    if wal.exists() and wal.stat().st_size and not (path.exists() and path.stat().st_size):
        raise StorageError(
            f"expected {path} beside {wal.name}, found {'an empty file' if path.exists() else 'nothing'}: the newest jobs "
            f"may be in {wal.name} alone. Put the file back that it belongs to, or, to begin anew, move {wal} away."
        )


def check_wal_fits_file(path: Path) -> None:
    """StorageError where the WAL that a crash has left does not fit the file, as when a backup was put back beside it.

    Whoever opens both for writing copies the one into the other, and a file that was good before is lost. So they are
    looked at through a connection that cannot write. After a good end there is no WAL, and nothing to look for.
    """
    wal = wal_of(path)
    if (
        not (wal.exists() and wal.stat().st_size and path.exists())
        or path.stat().st_size > _LOOKED_THROUGH_BYTES
    ):
        return
    said = _checked(path)
    if said != "ok":
        raise StorageError(
            f"{path} and {wal.name} do not fit together ({said}); nothing was changed. If a backup was put in place, "
            f"move {wal} away, which belongs to the file before it; else put back a backup of the whole directory."
        )


def _checked(path: Path) -> str:
    """What SQLite says of the file together with its WAL. What keeps it from opening them is for the real start to tell."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        said = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        return said.splitlines()[-1]  # above it stands of which database
    except sqlite3.OperationalError:
        return "ok"
    except sqlite3.DatabaseError as error:
        return str(error)
    finally:
        connection.close()


def check_is_store(connection: sqlite3.Connection, path: Path) -> None:
    """SchemaError where the file is a database, but not a store."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if (names or version) and not (version and names >= _OURS):
        raise SchemaError(f"{path} is a database, but not a store of Regista. Name another file.")
