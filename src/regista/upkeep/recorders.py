"""Recorders: where the orchestrators of one store record what happens. It must be one place.

Of those who share a store one records at a time, and what it has recorded is gone from the store. A history that lies in a file or in
the memory of one of them would take events away from all others, who could neither list nor tell them.
"""

import asyncio
import logging
import os
import socket
from datetime import datetime

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from ..history.base import HistoryStorage
from ..model import Record, RecordWrite
from ..storage.base import Shelves
from .loop import Report

log = logging.getLogger("regista.upkeep")

#: Where it stands.
# Not the name of the chore: a write to a shelf of that name would run the chore again, which writes.
SHELF, KEY = "recording", "place"
#: A word counts for so many seconds, and is said again after so many. Whoever was killed is waited for until then.
LASTS_S, EVERY_S = 10.0, 3.0
#: Between two looks for a predecessor that may still leave, in seconds.
_LOOK_S = 0.25


class Place(Struct, frozen=True):
    """Where events are recorded, and who has said so last."""

    #: The place in words; empty: a database, which all may share.
    local: str
    instance: str = ""

    def fits(self, other: "Place") -> bool:
        """Whoever reads the one reads the other. Whether two names mean one database is for that to say."""
        return self.local == other.local

    def __str__(self) -> str:
        return self.local or "a database"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Place).decode


def place_of(history: HistoryStorage) -> Place:
    """Where a history lies. One that does not say is taken for a shared one."""
    if getattr(history, "shared", True):
        return Place("")
    path = getattr(history, "path", None)
    what = (
        f"sqlite:{path.absolute()}"
        if path is not None
        else f"the memory of process {os.getpid()} ({id(history):x})"
    )
    return Place(f"{what} on {socket.gethostname()}")


class Recorders:
    """A chore that keeps the word in the store of where everybody records; and says, at the start, whether we may.

    The first one writes it, whoever records in the same place repeats it, and whoever would record elsewhere is refused. The word
    is forgotten some seconds after the last one has stopped.
    """

    name = "recorders"
    needs_leader = False

    def __init__(
        self,
        shelves: Shelves,
        place: Place,
        instance: str,
        lasts_s: float = LASTS_S,
        interval_s: float = EVERY_S,
    ) -> None:
        self.interval_s = interval_s
        self._shelves = shelves
        self._lasts_s = lasts_s
        self._place = msgspec.structs.replace(place, instance=instance)
        self._told = False

    async def enter(self) -> None:
        """Say where we record. ConfigError when others, who are alive, record elsewhere."""
        if self._place.local:
            _warn(self._place)
        first: Record | None = None
        while (found := await self._say()) is not None:
            # Maybe its last word, from before it was stopped: then it is over soon.
            first = first or found
            if found.revision != first.revision:  # said since we came
                raise _refused(_read(found), self._place)
            await asyncio.sleep(_LOOK_S)

    async def run_once(self, now: datetime) -> Report:
        """Say it again."""
        found = await self._say()
        if found is not None and not self._told:  # we were cut off for so long that our word was over
            log.error("%s", _refused(_read(found), self._place), extra={"action": "history_elsewhere"})
        self._told = found is not None
        return Report()

    async def _say(self) -> Record | None:
        """Write or repeat the word. Returns the word of others that stands against ours, if there is one."""
        known = await self._shelves.item(SHELF, KEY)
        if known is not None and not _read(known).fits(self._place):
            return known
        expected = 0 if known is None else known.revision
        write = RecordWrite(SHELF, KEY, _encode(self._place), expected=expected, ttl_s=self._lasts_s)
        (written,) = await self._shelves.put([write])
        # Somebody else has written at the same moment: the same, mostly.
        return None if written else await self._say()


def _read(item: Record) -> Place:
    try:
        return _decode(item.value)
    except msgspec.MsgspecError as error:
        return Place(f"a place that cannot be read here ({error})")  # of another version: it is not ours


def _warn(place: Place) -> None:
    log.warning(
        "others may share this store, but not this history (%s): only this instance could list and tell what it records; "
        "set HISTORY_DATABASE_URI to the same PostgreSQL database for all of them, or to nothing",
        place,
        extra={"action": "history_not_shared"},
    )


def _refused(other: Place, ours: Place) -> ConfigError:
    expected = (
        f"the history of instance {other.instance!r}, which shares this store ({other}): set it alike for all"
    )
    return ConfigError("HISTORY_DATABASE_URI", expected, str(ours))
