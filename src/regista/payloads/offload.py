"""Offload: large values leave a record, and a reference with a checksum stays in their place.

A value of a record (input, data, result, params) is stored in one of these forms:

| form                                   | means                                            |
|----------------------------------------|--------------------------------------------------|
| the value itself                       | it is small                                      |
| `{MARK: {"whole": ref}}`               | all of it lies elsewhere                         |
| `{MARK: {"keys": {k: ref}}, …rest}`    | some members lie elsewhere                       |
| `{MARK: {"plain": value}}`             | somebody's own value that looks like one of these |

A reference leads to `records/{job_id}/{sha256}`, and to no other job's. Only `pack` writes one: a dict under MARK
that comes to be stored is somebody's own value, whatever it says, and is stored as `plain`. A reference that was
read and not followed has a `Kept` under MARK, which nobody can send.
"""

import asyncio
import logging
from collections import OrderedDict
from hashlib import sha256
from typing import Any

import msgspec

from ..clock import Clock
from ..errors import FileMissing, IntegrityError, PayloadError, PayloadUnavailable
from .base import (
    MARK,
    SHOWN,
    FetchFailure,
    PayloadStore,
    UnfetchedValue,
    ValueRef,
    is_own,
    leads_home,
    read_ref,
    record_prefix,
)
from .fresh import RecentUploads

log = logging.getLogger("regista.payloads")

#: Bytes of values that are remembered, so that what was just written need not be read again.
_REMEMBERED = 64 * 1024 * 1024
#: How long a commit waits for the payload store before it keeps a large value itself.
_PATIENCE_S = 5.0
#: Values that are read, and that are written, at once. Files have turns of their own.
_TURNS = 32
#: How long nobody tries again after that.
_REST_S = 10.0
#: Bytes whose checksum takes a millisecond or more.
_LONG = 1024 * 1024

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_REFUSALS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class Offloader:
    """Puts large values away and fetches them. A payload store that is away keeps no commit from being written:
    the value then stays in the record, as if there were none.
    """

    def __init__(self, store: PayloadStore, limit: int, clock: Clock) -> None:
        """Values above `limit` bytes are put away."""
        # Turns of our own: patience is with the store alone, never with those who wait beside us for one.
        self._store = store.with_own_limits(_TURNS)
        self._reads, self._writes = asyncio.Semaphore(_TURNS), asyncio.Semaphore(_TURNS)
        self._limit = limit
        self._clock = clock
        #: Path → the bytes of the value, newest last.
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._known_bytes = 0
        #: What need not be written again. What is only known may have been removed since.
        self.fresh = RecentUploads(clock)
        self._resting_until = 0.0

    # -- how large -------------------------------------------------------------------------------

    def needs_offload(self, value: Any) -> bool:
        """The value must be looked at before it is stored: it is large, or looks like a reference. Quick."""
        if not value:
            return False
        try:
            # To encode it is the quickest way to measure it, by far.
            return len(_encode(value)) > self._limit or (type(value) is dict and MARK in value)
        except _REFUSALS:
            return False  # nobody can store it, and the store says so better than we could

    # -- putting away ----------------------------------------------------------------------------

    async def pack(self, owner: str, value: Any) -> Any:
        """The value as it shall be stored in the record of the job `owner`."""
        if not self.needs_offload(value):
            return value
        if isinstance(value, dict):
            if MARK not in value:
                return await self._pack_dict(owner, value)
            if not isinstance(value[MARK], UnfetchedValue):
                return {MARK: {"plain": value}}
            value = _bare(value, value[MARK])
            return value if MARK in value else await self.pack(owner, value)
        ref = await self._put(owner, value)
        return value if ref is None else {MARK: {"whole": ref}}

    async def _pack_dict(self, owner: str, value: dict[str, Any]) -> Any:
        """Single members if they are what is large, so that a small change does not write all of it again."""
        large = {key for key, each in value.items() if len(_encode(each)) > self._limit}
        rest = {key: each for key, each in value.items() if key not in large}
        if not large or self.needs_offload(rest):
            ref = await self._put(owner, value)
            return value if ref is None else {MARK: {"whole": ref}}
        refs = {key: await self._put(owner, value[key]) for key in large}
        kept = {key: value[key] for key, ref in refs.items() if ref is None}
        found = {key: ref for key, ref in refs.items() if ref is not None}
        return {MARK: {"keys": found}, **rest, **kept} if found else value

    async def _put(self, owner: str, value: Any) -> dict[str, Any] | None:
        """The reference, once the value is safe; None when it could not be put away."""
        body = _encode(value)
        digest = await _digest(body)
        path = f"{record_prefix(owner)}/{digest}"
        if not self.fresh.has(owner, path):
            if self._clock.elapsed() < self._resting_until:
                return None
            try:
                async with self._writes, asyncio.timeout(_PATIENCE_S):
                    await self._store.put(path, body)
            except Exception as error:  # noqa: BLE001  # whatever a store raises, the commit is written
                self._rest(path, error)
                return None
            self.fresh.add(owner, path)
        self._remember(path, body)
        return {"path": path, "sha256": digest, "size": len(body)}

    def _rest(self, path: str, error: Exception) -> None:
        self._resting_until = self._clock.elapsed() + _REST_S
        log.warning(
            "%s was not put away (%s); large values stay in their records for %.0f s",
            path,
            str(error) or ("it took too long" if isinstance(error, TimeoutError) else type(error).__name__),
            _REST_S,
            exc_info=None if isinstance(error, PayloadError | TimeoutError) else error,
            extra={"action": "offload_failed"},
        )

    # -- fetching --------------------------------------------------------------------------------

    async def unpack(self, owner: str, value: Any) -> Any:
        """The value itself. One that cannot be had stays a reference, and tells why (`base.broken`). Never raises."""
        if not (isinstance(value, dict) and MARK in value):
            return value
        if _is_plain(value):
            return value[MARK]["plain"]
        if not is_own(owner, value):
            return value
        try:
            return await self._whole(value)
        except Exception as error:  # one record's trouble is not that of those read with it
            why = _why(error)
            log.error(
                "a value of job %s: %s",
                owner,
                why.message,
                exc_info=None if isinstance(error, PayloadError) else error,
                extra={"action": why.code, "job_id": owner},
            )
            return {**value, MARK: UnfetchedValue(value[MARK], why)}

    async def fetch(self, owner: str, ref: ValueRef) -> Any:
        """The value behind a reference of the job `owner`; IntegrityError, PayloadUnavailable."""
        if not leads_home(record_prefix(owner), ref):
            raise FileMissing(ref.path)
        return await self._get(ref)

    async def _whole(self, value: dict[str, Any]) -> Any:
        mark, rest = value[MARK], {key: each for key, each in value.items() if key != MARK}
        if "whole" in mark:
            found = await self._get(read_ref(mark["whole"]))
            return {**found, **rest} if rest and isinstance(found, dict) else found
        return {**{key: await self._get(read_ref(ref)) for key, ref in mark["keys"].items()}, **rest}

    async def _get(self, ref: ValueRef) -> Any:
        body = self._known.get(ref.path)
        if body is None:
            body = await self._fetch(ref)
            self._remember(ref.path, body)
        return _decode(body)

    async def _fetch(self, ref: ValueRef) -> bytes:
        try:
            async with self._reads, asyncio.timeout(_PATIENCE_S):
                body = await self._store.get(ref.path)
        except FileMissing:
            raise IntegrityError(ref.path, ref.sha256, "nothing") from None
        except TimeoutError:
            raise PayloadUnavailable(f"{ref.path}: the payload store is too slow") from None
        digest = await _digest(body)
        if digest != ref.sha256:
            raise IntegrityError(ref.path, ref.sha256, f"{len(body)} bytes with sha256:{digest}")
        return body

    def _remember(self, path: str, body: bytes) -> None:
        if len(body) > _REMEMBERED // 8:
            return
        if self._known.pop(path, None) is None:
            self._known_bytes += len(body)
        self._known[path] = body
        while self._known_bytes > _REMEMBERED:
            self._known_bytes -= len(self._known.popitem(last=False)[1])


def shown(owner: str, value: Any) -> Any:
    """A stored value as people see it: a size and a checksum in the place of what lies elsewhere."""
    if not (isinstance(value, dict) and MARK in value):
        return value
    if _is_plain(value):
        return value[MARK]["plain"]
    if not is_own(owner, value):
        return value
    mark = value[MARK]
    if "whole" in mark:
        return _shown(mark["whole"])
    rest = {key: each for key, each in value.items() if key != MARK}
    return {**rest, **{key: _shown(ref) for key, ref in mark["keys"].items()}}


def unfetched(owner: str, value: Any) -> Any:
    """A stored value for whoever does not need what lies elsewhere, and may store it again."""
    if not (isinstance(value, dict) and MARK in value):
        return value
    if _is_plain(value):
        return value[MARK]["plain"]
    return {**value, MARK: UnfetchedValue(value[MARK])} if is_own(owner, value) else value


def _shown(ref: dict[str, Any]) -> dict[str, Any]:
    return {SHOWN: {"size": ref["size"], "sha256": ref["sha256"]}}


async def _digest(body: bytes) -> str:
    """The checksum; of what would hold the loop, in a thread."""
    if len(body) > _LONG:
        return (await asyncio.to_thread(sha256, body)).hexdigest()
    return sha256(body).hexdigest()


def _is_plain(value: dict[str, Any]) -> bool:
    """Somebody's own value, as `pack` writes it, and nothing that only resembles one."""
    mark = value[MARK]
    return len(value) == 1 and isinstance(mark, dict) and mark.keys() == {"plain"}


def _why(error: Exception) -> FetchFailure:
    """What is told of a value that could not be had. What nobody foresaw would happen again."""
    if isinstance(error, PayloadError):
        return FetchFailure(error.code, str(error), error.permanent)
    return FetchFailure(PayloadError.code, f"{type(error).__name__}: {error}", True)


def _bare(value: dict[str, Any], kept: UnfetchedValue) -> dict[str, Any]:
    """The form that is stored, without what a reader noted in it.

    A member that is there beside its own reference was written later, say by a person who mended the job: it wins.
    """
    mark = dict(kept.mark)
    if "keys" in mark:
        mark["keys"] = {key: ref for key, ref in mark["keys"].items() if key not in value}
    rest = {key: each for key, each in value.items() if key != MARK}
    return {MARK: mark, **rest} if mark.get("keys", True) else rest
