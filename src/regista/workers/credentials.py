"""Short-lived worker tokens (STS): given out, renewed, taken back. They lie in the store, and only as hashes.

A *login* is one family of tokens: an access token that is good for an hour, and a refresh token that can be traded
once for the next pair. A refresh token that comes back after it was used is in two hands, so the whole family ends.
Every instance that shares the store knows every login, and a restart forgets none.
"""

import hashlib
import hmac
import logging
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock
from ..model import Record, RecordWrite
from ..storage.base import StorageBackend, find_record, shared_secret
from ..tokens import digest

log = logging.getLogger("regista.credentials")

#: How tokens begin: by it they are told from configured ones, without a look into the store.
ACCESS = "rst"
REFRESH = "rsr"
#: The shelf of the logins; their keys begin with the worker's id and a dot.
SHELF = "worker-logins"
#: A worker has at most so many at a time; with the next one its oldest ends.
MOST_LOGINS = 8
#: Used refresh tokens that are remembered; one that is older is merely unknown.
MOST_USED = 64
#: Seconds for which the access token before a refresh stays good, if it is not over by itself.
OVERLAP_S = 60.0
#: Where others write to the store too, a login that was found is believed for so long.
BELIEVED_S = 1.0
#: Logins that are remembered at most.
_MOST_BELIEVED = 20_000


class TokenRefused(Exception):
    """A token that is no good (any more). The message says why; it holds nothing of the token."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class WorkerTokens(Struct, frozen=True):
    """What a worker is given. Nobody else ever sees it, and it is not kept."""

    access_token: str
    refresh_token: str
    #: Seconds for which the access token is good.
    expires_in: float
    worker_id: str


class TokenFamily(Struct, frozen=True, gc=False):
    """What is kept of a family of tokens."""

    worker_id: str
    #: SHA-256 of the tokens that are good now.
    access: str
    refresh: str
    #: Seconds since 1970 at which the access token is over.
    until: float
    #: `fingerprint` of the configured token that it was given for; empty: a certificate or a one-time password.
    grounds: str = ""
    #: When the present pair was asked for.
    asked_at: float = 0.0
    #: SHA-256 of the access token before, and when that is over: what is on its way with it shall arrive.
    before: str = ""
    before_until: float = 0.0
    #: SHA-256 of refresh tokens that were traded, newest last.
    used: tuple[str, ...] = ()


class TokenLifetimes(Struct, frozen=True):
    """How long tokens are good, in seconds."""

    access_s: float = 3600.0
    refresh_s: float = 7 * 86400.0


_decode = msgspec.msgpack.Decoder(TokenFamily).decode
_encode = msgspec.msgpack.Encoder().encode


class WorkerTokenStore:
    """Gives out tokens and knows them again. Holds nothing that the store does not hold."""

    def __init__(
        self, storage: StorageBackend, clock: Clock, lifetimes: TokenLifetimes | None = None
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._lifetimes = lifetimes or TokenLifetimes()
        self._secret = b""
        #: Key → (what was found, until when that is believed by `elapsed`).
        self._believed: dict[str, tuple[TokenFamily, float]] = {}

    # -- giving out ------------------------------------------------------------------------------

    async def issue(self, worker_id: str, grounds: str = "") -> WorkerTokens:
        """The first pair of a new login. Of too many logins of one worker the oldest ends."""
        family = self.new_family()
        tokens = await self.derive(worker_id, family, secrets.token_urlsafe(32))
        await self.keep(family, self.login_of(tokens, grounds))
        await self._end_oldest(worker_id)
        log.info("%s has a new login", worker_id, extra={"action": "login", "worker_id": worker_id})
        return tokens

    async def refresh(self, token: str, request_id: str = "", leeway_s: float | None = None) -> WorkerTokens:
        """The next pair, for a refresh token that was not used before. TokenRefused for any other.

        The same request (by a `request_id` that only its sender knows) is answered like the first time, for as
        long as its answer was not used; with `leeway_s` only for so long. Any other use of a used token ends the family.
        """
        key, found, login = await self._look_up(REFRESH, token)
        request = request_id or secrets.token_urlsafe(16)
        tokens = await self.derive(login.worker_id, key.partition(".")[2], token, request)
        if self._is_repeat(login, tokens, leeway_s):
            return tokens
        if not hmac.compare_digest(login.refresh, digest(token)):
            raise await self._misused(key, login, digest(token))
        fresh = self.login_of(tokens, login.grounds)
        renewed = replace(
            fresh,
            before=login.access,
            before_until=min(login.until, fresh.asked_at + OVERLAP_S),
            used=(*login.used, login.refresh)[-MOST_USED:],
        )
        if not await self._write(key, renewed, found.revision):
            # Somebody else has traded it meanwhile: now it is a used one.
            return await self.refresh(token, request, leeway_s)
        return tokens

    def _is_repeat(self, login: TokenFamily, tokens: WorkerTokens, leeway_s: float | None) -> bool:
        """The pair that this request leads to is the present one: only our answer was lost."""
        since = self._clock.now().timestamp() - login.asked_at
        in_time = leeway_s is None or since <= leeway_s
        return in_time and hmac.compare_digest(login.refresh, digest(tokens.refresh_token))

    async def _misused(self, key: str, login: TokenFamily, hashed: str) -> TokenRefused:
        if hashed not in login.used:
            return TokenRefused("token_unknown", "this refresh token is not known here")
        await self._end([key])
        told = {"action": "refresh_reused", "worker_id": login.worker_id}
        log.warning("a used refresh token of %s came back; its login ends", login.worker_id, extra=told)
        return TokenRefused(
            "token_reused", "this refresh token was used before, so the login is over: begin anew"
        )

    # -- knowing again ---------------------------------------------------------------------------

    async def find(self, token: str) -> TokenFamily:
        """The login of an access token that is good now; TokenRefused for any other."""
        key = key_of(ACCESS, token)
        believed = self._believed.get(key)
        if believed is not None and believed[1] > self._clock.elapsed():
            login = believed[0]
        else:
            key, _, login = await self._look_up(ACCESS, token)
            self._believe(key, login)
        until = _until(login, digest(token))
        if until is None:
            raise TokenRefused("token_unknown", "this worker token is not known here")
        if until <= self._clock.now().timestamp():
            raise TokenRefused("token_expired", "this worker token is over: refresh it, or ask for another")
        return login

    async def living(self, token: str) -> TokenFamily | None:
        """The login of this access token, though the token itself may be over; None when the login is."""
        try:
            return (await self._look_up(ACCESS, token))[2]
        except TokenRefused:
            return None

    def _believe(self, key: str, login: TokenFamily) -> None:
        if self._storage.shared:  # else the store is in this process, and quicker than this
            if len(self._believed) >= _MOST_BELIEVED:
                self._believed.clear()
            self._believed[key] = (login, self._clock.elapsed() + BELIEVED_S)

    async def fingerprint(self, token: str) -> str:
        """What is kept to see that a configured token is still the same one; nobody without our secret can try tokens on it."""
        return (await self._mac("grounds", token)).hex()

    # -- taking back -----------------------------------------------------------------------------

    async def revoke(self, worker_id: str) -> int:
        """End every login of a worker; returns how many there were."""
        keys = [item.key for item in await self._of(worker_id)]
        await self._end(keys)
        if keys:
            told = {"action": "logins_revoked", "worker_id": worker_id}
            log.info("%s: %s logins ended", worker_id, len(keys), extra=told)
        return len(keys)

    async def _end(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._believed.pop(key, None)
        if keys:
            await self._storage.put_records([RecordWrite(SHELF, key, None) for key in keys])

    async def _end_oldest(self, worker_id: str) -> None:
        # Families are named by the time they began, so the first ones are the oldest.
        items = await self._of(worker_id)
        await self._end([item.key for item in items[:-MOST_LOGINS]])

    async def _of(self, worker_id: str) -> list[Record]:
        """The logins of a worker, oldest first."""
        found: list[Record] = []
        after, prefix = f"{worker_id}.", f"{worker_id}."
        while True:
            page = await self._storage.records(SHELF, after=after)
            ours = [item for item in page if item.key.startswith(prefix)]
            found += ours
            if not page or len(ours) < len(page):
                return found
            after = page[-1].key

    # -- the store -------------------------------------------------------------------------------

    async def _look_up(self, kind: str, token: str) -> tuple[str, Record, TokenFamily]:
        key = key_of(kind, token)
        item = await find_record(self._storage, SHELF, key) if key else None
        if item is None:
            raise TokenRefused("token_unknown", "this token is not known here (any more): begin anew")
        return key, item, _decode(item.value)

    async def keep(self, family: str, login: TokenFamily) -> None:
        """Write a new login down; one that is there already stays as it is."""
        await self._write(f"{login.worker_id}.{family}", login, 0)

    async def _write(self, key: str, login: TokenFamily, expected: int) -> bool:
        self._believed.pop(key, None)
        write = RecordWrite(SHELF, key, _encode(login), expected=expected, ttl_s=self._lifetimes.refresh_s)
        return (await self._storage.put_records([write]))[0]

    # -- making ----------------------------------------------------------------------------------

    def new_family(self) -> str:
        """A name for a login; later ones sort after earlier ones."""
        return f"{int(self._clock.now().timestamp() * 1000):012x}{secrets.token_hex(4)}"

    def login_of(self, tokens: WorkerTokens, grounds: str = "") -> TokenFamily:
        """What is kept of a pair that is given out now."""
        now = self._clock.now().timestamp()
        return TokenFamily(
            worker_id=tokens.worker_id,
            access=digest(tokens.access_token),
            refresh=digest(tokens.refresh_token),
            until=now + tokens.expires_in,
            grounds=grounds,
            asked_at=now,
        )

    async def derive(self, worker_id: str, family: str, *seeds: str) -> WorkerTokens:
        """The pair that follows from seeds that are secret and not kept: so a repeat of a request gets the same answer."""
        where = f"{worker_id}.{family}"
        access, refresh = [await self._mac(kind, where, *seeds) for kind in (ACCESS, REFRESH)]
        return WorkerTokens(
            access_token=f"{ACCESS}.{where}.{_text(access)}",
            refresh_token=f"{REFRESH}.{where}.{_text(refresh)}",
            expires_in=self._lifetimes.access_s,
            worker_id=worker_id,
        )

    async def _mac(self, *parts: str) -> bytes:
        if not self._secret:
            self._secret = await shared_secret(self._storage, "worker-tokens")
        # Each part says how long it is: no two lists of parts look alike.
        told = "".join(f"{len(part)}:{part}" for part in parts)
        return hmac.new(self._secret, told.encode("utf-8", "surrogateescape"), hashlib.sha256).digest()


def _until(login: TokenFamily, hashed: str) -> float | None:
    """When the token with this hash is over; None when it is none of the login's."""
    now, before = hmac.compare_digest(login.access, hashed), hmac.compare_digest(login.before, hashed)
    return login.until if now else login.before_until if before else None


def is_access(token: str) -> bool:
    """It looks like an access token of ours."""
    return token.startswith(f"{ACCESS}.")


def key_of(kind: str, token: str) -> str:
    """Where a token's login would lie; empty for what is no token of this kind."""
    parts = token.split(".")
    right = len(parts) == 4 and parts[0] == kind and all(parts) and token.isascii() and token.isprintable()
    return f"{parts[1]}.{parts[2]}" if right and len(token) <= 512 else ""


def _text(value: bytes) -> str:
    return urlsafe_b64encode(value).decode().rstrip("=")
