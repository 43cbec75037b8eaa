"""One-time passwords: what a worker that is just being started is let in with. Good once, for minutes.

The password goes into the worker's environment (REGISTA_TOKEN); the worker trades it for a login of its own
(`credentials`). Only its hash is kept, and it is never logged.
"""

import hmac
import logging
import secrets

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..model import Record, RecordWrite
from ..storage.base import StorageBackend, find_record
from ..tokens import digest
from .credentials import TokenRefused, WorkerTokens, WorkerTokenStore

log = logging.getLogger("regista.credentials")

#: How one-time passwords begin.
PREFIX = "rop."
SHELF = "worker-passwords"
#: Seconds for which a password is good.
LIFETIME_S = 300.0


#: What is said about a password that is not, or no longer, kept.
UNKNOWN = "this one-time password is not known here, or its time is over"


class OneTimePassword(Struct, frozen=True):
    """A password that was made. Shown to whoever asked for it, and to nobody again."""

    text: str
    #: The worker that it is for; empty: whichever uses it first.
    worker_id: str
    lifetime_s: float


class StoredPassword(Struct, frozen=True, gc=False):
    """What is kept of it."""

    worker_id: str
    #: Once it was used: the login that it was traded for, and the SHA-256 of the request that did.
    family: str = ""
    asked: str = ""


class WrongWorker(TokenRefused):
    """The password is another worker's. It stays good for that one."""


_decode = msgspec.msgpack.Decoder(StoredPassword).decode
_encode = msgspec.msgpack.Encoder().encode


class OneTimePasswords:
    """Makes one-time passwords, and trades each once."""

    def __init__(self, storage: StorageBackend, credentials: WorkerTokenStore) -> None:
        self._storage = storage
        self._credentials = credentials

    async def make(self, worker_id: str = "", lifetime_s: float = LIFETIME_S) -> OneTimePassword:
        """A new one, for this worker or for whichever uses it first."""
        text = PREFIX + secrets.token_urlsafe(32)
        write = RecordWrite(
            SHELF, digest(text), _encode(StoredPassword(worker_id)), expected=0, ttl_s=lifetime_s
        )
        await self._storage.put_records([write])
        told = {"action": "password_made", "worker_id": worker_id}
        log.info("a one-time password was made for %s", worker_id or "any worker", extra=told)
        return OneTimePassword(text, worker_id, lifetime_s)

    async def owner(self, text: str) -> str | None:
        """The worker that a password is for, or that has used it; empty: any. None: it is not known."""
        item = await self._item(text)
        return None if item is None else _decode(item.value).worker_id

    async def trade(self, text: str, worker_id: str, request_id: str = "") -> WorkerTokens:
        """The login of a worker that brings a password. TokenRefused when it is unknown, over, used or another's.

        Of two who bring the same one, one gets it. The same request, by its `request_id`, is answered like the first time.
        """
        item = await self._item(text)
        if item is None:
            raise TokenRefused("password_unknown", UNKNOWN)
        kept = _decode(item.value)
        if kept.worker_id not in ("", worker_id):
            raise WrongWorker("worker_mismatch", "this one-time password is for another worker")
        request = request_id or secrets.token_urlsafe(16)
        if not kept.family:
            kept = replace(
                kept, worker_id=worker_id, family=self._credentials.new_family(), asked=digest(request)
            )
            write = RecordWrite(SHELF, item.key, _encode(kept), expected=item.revision, ttl_s=LIFETIME_S)
            if not (await self._storage.put_records([write]))[0]:
                return await self.trade(text, worker_id, request)  # somebody was quicker: now it is used
        elif not hmac.compare_digest(kept.asked, digest(request)):
            told = {"action": "password_reused", "worker_id": worker_id}
            log.warning("a used one-time password came back, from %s", worker_id, extra=told)
            raise TokenRefused(
                "password_used", "this one-time password was used before; have another one made"
            )
        tokens = await self._credentials.derive(worker_id, kept.family, text, request)
        # After the mark, not before: a crash between the two is mended by the repeat of the request.
        await self._credentials.keep(kept.family, self._credentials.login_of(tokens))
        return tokens

    async def revoke(self, worker_id: str) -> int:
        """Forget the passwords of a worker; returns how many of them could still have been used.

        Used ones go too: a repeat of the request that used it would else begin the login again.
        """
        doomed: dict[str, StoredPassword] = {}
        after = ""
        while page := await self._storage.records(SHELF, after=after):
            kept = {item.key: _decode(item.value) for item in page}
            doomed |= {key: one for key, one in kept.items() if one.worker_id == worker_id}
            after = page[-1].key
        if doomed:
            await self._storage.put_records([RecordWrite(SHELF, key, None) for key in doomed])
        return sum(not one.family for one in doomed.values())

    async def _item(self, text: str) -> Record | None:
        return await find_record(self._storage, SHELF, digest(text)) if is_password(text) else None


def is_password(text: str) -> bool:
    """It looks like a one-time password of ours."""
    return text.startswith(PREFIX)
