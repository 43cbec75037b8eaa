"""How often. Before it is known who asks, by address; then by client; workers are counted where they are let in."""

import ipaddress
import math
from collections.abc import AsyncIterator
from functools import lru_cache

from aiohttp import hdrs, web

from ...config.rates import Context, rates_of
from ...model import ClientConfig, Rate
from ..address import client_address
from ..buckets import Bucket
from ..certificate import certificate_name
from ..destinations import LOOKS, WORKERS, Destination
from ..limits import Limits
from ..problems import Problem
from ..stage import CLIENT, Stage
from ..worker_auth import SPEAKER, say_version, token_of
from .client_auth import CLIENT_TOKEN

#: The bucket that a request was counted in; its answer tells what is left.
COUNTED = web.RequestKey("counted", Bucket)
#: Credentials that are remembered, by address, as good ones.
_MOST_KNOWN = 100_000
#: What a token may come in, besides.
_WORKER_TOKEN = type(hdrs.VARY)("X-Worker-Token")
#: What a guess at a signed address is answered with.
_GUESSES = frozenset({"token_wrong", "link_invalid"})
#: Refusals that are about more than the credential: with the same one each of them may be another guess.
_NO_REPEATS = _GUESSES | {
    "signature_missing",
    "signature_wrong",
    "timestamp_missing",
    "timestamp_out_of_range",
}
#: A socket over which too much comes is not read for so long.
_BREATHER_S = 0.5
#: Found once: a member of an enum that is looked up on its class costs more than to use it.
_READ, _SUBMIT, _EMPTY_POLL = Context.READ, Context.SUBMIT, Context.EMPTY_POLL
_PUBLIC = Context.PUBLIC
_WORDS = {
    Context.AUTH: "too many requests from this address brought no good token",
    Context.EMPTY_POLL: "too many polls found nothing: let a poll wait (`timeout`)",
}


class Gate:
    """Counts requests, refuses those that are too many, and tells everybody what is left."""

    def __init__(self, stage: Stage) -> None:
        take = stage.storage.take if stage.storage.shared else None
        self.limits = Limits(rates_of(stage.config.rate_limits), stage.clock.elapsed, take)
        self._trusted = stage.config.trusted_proxies
        self._proxied = bool(self._trusted)
        self._auth = self.limits.rate(Context.AUTH)
        self._public = self.limits.rate(Context.PUBLIC)
        #: Addresses with failures lately; mostly nobody.
        self._failing: dict[str, Bucket] = {}
        #: Hashes of (address, credential) that were let in; never the credentials themselves.
        self.known: set[int] = set()
        #: Hashes of (address, credential) that were refused lately, each with a bucket of its own.
        self._refused: dict[int, Bucket] = {}
        self._certificates = stage.config.worker_auth_mode != "token-only"

    # -- by address ------------------------------------------------------------------------------

    def greet(self, request: web.Request, *, worker: bool = False) -> int:
        """Look at whoever wants to prove who he is; what his request is known by afterwards.

        An address that failed too often is not even listened to, but for credentials that were good from there
        before: one broken worker must not lock out its neighbours behind the same address. Nor need it: the same
        wrong credential again is no new guess, and is counted for itself.
        """
        mark = self._mark(request, worker)
        if self._failing and mark not in self.known:
            self._listen_to(self._address(request), mark)
        return mark

    def part(self, request: web.Request, mark: int) -> None:
        """It went well, with a credential that is not `known`: if it was good, it is remembered."""
        if _has_proved(request):
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known.add(mark)

    def refused(self, request: web.Request, problem: Problem, mark: int | None) -> None:
        """It was refused: whoever failed to prove who he is, or guessed at something, is counted."""
        if self._auth is not None and (problem.status == 401 or problem.code in _GUESSES):
            if mark is not None:
                self.known.discard(mark)  # whatever it was good for: with it, one can guess at other things
            self._failed(request, self._auth, problem.code not in _NO_REPEATS)

    async def public(self, request: web.Request) -> None:
        """Count what anybody may ask for."""
        if self._public is not None:
            unsure = self._spend_here(request, _PUBLIC, self._address(request), self._public)
            if unsure is not None:
                await self.ask_store(request, unsure)

    def _mark(self, request: web.Request, worker: bool) -> int:
        """Stands for where a request comes from and everything that it would prove with who sends it.

        The certificate is a worker's proof alone.
        """
        where = self._address(request) if self._proxied else request.remote
        name = _certificate(request, self._trusted) if worker and self._certificates else None
        told = request.headers.get
        return hash((where, name, told(CLIENT_TOKEN), told(_WORKER_TOKEN), told(hdrs.AUTHORIZATION)))

    def _listen_to(self, address: str, mark: int) -> None:
        bucket = self._failing.get(address)
        if bucket is None:
            return
        own = self._refused.get(mark)
        if own is not None and self.limits.is_spent(own):
            raise self._too_many(own)
        if self.limits.is_spent(bucket):
            raise self._too_many(bucket)
        if bucket.left() >= bucket.rate.limit and own is None:
            del self._failing[address]

    def _failed(self, request: web.Request, rate: Rate, may_repeat: bool) -> None:
        address = self._address(request)
        bucket = self.limits.bucket(Context.AUTH, address, rate)
        own = self._own(request, rate) if may_repeat else None
        if own is None or self._is_new(own):
            self.limits.charge(bucket)
        self._failing[address] = bucket
        request[COUNTED] = bucket if own is None else min(bucket, own, key=Bucket.left)
        if len(self._failing) > _MOST_KNOWN:
            self._failing = {}  # what is remembered of strangers is bounded; they begin anew

    def _own(self, request: web.Request, rate: Rate) -> Bucket:
        """The bucket of a wrong credential. What a body brought (to be refreshed) is one, too."""
        mark, speaker = self._mark(request, is_for_workers(request)), request.get(SPEAKER)
        if speaker is not None and speaker.token != token_of(request):
            mark = hash((mark, speaker.token))
        if len(self._refused) >= _MOST_KNOWN:
            self._refused = {}
        own = self._refused.get(mark)
        if own is None or own.rate != rate:
            own = Bucket(Context.AUTH, str(mark), rate, self.limits.now(), shared=False)
            self._refused[mark] = own
        return own

    def _is_new(self, own: Bucket) -> bool:
        """Count a refusal of this credential; True for the first one in a window."""
        now = self.limits.now()
        first = own.is_full(now)
        own.charge(1, now)
        return first

    def _address(self, request: web.Request) -> str:
        return neighbourhood(client_address(request) if self._proxied else request.remote or "")

    # -- by client -------------------------------------------------------------------------------

    def client(self, request: web.Request, client: ClientConfig, to: Destination) -> Bucket | None:
        """Count what a client asks for. The bucket, where only the store knows whether that is too much."""
        looks = request.method in LOOKS if to.only_looks is None else to.only_looks
        context = _READ if looks else _SUBMIT
        own = client.rate_limits
        rate = own[context] if context in own else self.limits.rate(context)
        return None if rate is None else self._spend_here(request, context, client.name, rate)

    async def more(self, request: web.Request, n: int) -> None:
        """The request stands for `n` more than the one that was counted: the jobs of a batch."""
        bucket = request.get(COUNTED)
        if bucket is not None and n > 0 and not await self.limits.spend(bucket, n):
            raise self._too_many(bucket, n)

    # -- by worker -------------------------------------------------------------------------------

    async def worker(self, request: web.Request, context: Context, worker_id: str) -> None:
        """Count what a worker, who was let in, says."""
        rate = self.limits.rate(context)
        if rate is not None:
            unsure = self._spend_here(request, context, worker_id, rate)
            if unsure is not None:
                await self.ask_store(request, unsure)

    def breather_s(self, context: Context, worker_id: str, n: int) -> float:
        """Count `n` words that came over a socket; seconds for which it should not be read, mostly none.

        Nothing is refused there: a socket that is not read pushes back. The pause is short enough for heartbeats.
        """
        rate = self.limits.rate(context)
        if rate is None:
            return 0.0
        spent = self.limits.charge(self.limits.bucket(context, worker_id, rate), n)
        return _BREATHER_S if spent else 0.0

    def check_poll(self, request: web.Request, worker_id: str) -> None:
        """Refuse a poll of a worker whose polls found nothing too often."""
        rate = self.limits.rate(_EMPTY_POLL)
        if rate is not None:
            bucket = request[COUNTED] = self.limits.bucket(_EMPTY_POLL, worker_id, rate)
            if self.limits.is_spent(bucket):
                raise self._too_many(bucket)

    def found_nothing(self, request: web.Request) -> None:
        """A poll was empty."""
        bucket = request.get(COUNTED)
        if bucket is not None:
            self.limits.charge(bucket)

    # -- telling ---------------------------------------------------------------------------------

    def _spend_here(self, request: web.Request, context: Context, key: str, rate: Rate) -> Bucket | None:
        """The bucket when the store must be asked, by `ask_store`."""
        bucket = self.limits.bucket(context, key, rate)
        done = self.limits.spend_here(bucket)
        if done is None:
            return bucket
        if not done:
            raise self._too_many(bucket)
        request[COUNTED] = bucket
        return None

    async def ask_store(self, request: web.Request, bucket: Bucket) -> None:
        """The rest of counting a request that this process alone could not."""
        if not await self.limits.spend_there(bucket):
            raise self._too_many(bucket)
        request[COUNTED] = bucket

    def _too_many(self, bucket: Bucket, n: int = 1) -> Problem:
        wait_s = max(math.ceil(self.limits.wait_s(bucket, n)), 1)
        rate = bucket.rate
        words = _WORDS.get(Context(bucket.context), f"too many requests of the kind {bucket.context}")
        return Problem(
            429,
            "rate_limited",
            f"{words}; expected at most {rate.limit} in {rate.window_s:g} s; try again in {wait_s} s",
            headers={"Retry-After": str(wait_s), **dict(bucket.told_in_full())},
            context=str(bucket.context),
        )


GATE = web.AppKey("gate", Gate)


def install(app: web.Application, gate: Gate) -> None:
    """Let the gate end with the application."""
    app[GATE] = gate

    async def alive(_: web.Application) -> AsyncIterator[None]:
        yield
        await gate.limits.close()

    app.cleanup_ctx.append(alive)


def tell(request: web.Request, response: web.StreamResponse) -> None:
    """Let an answer tell what is left. Streams call it before they begin; for the others it is done at the end."""
    bucket = request.get(COUNTED)
    if bucket is not None:
        response.headers.update(bucket.told())
    if WORKERS in request.path:
        say_version(request, response)


def is_for_workers(request: web.Request) -> bool:
    """Only workers get an answer there. By the route: a path may have names in it that others chose."""
    resource = request.match_info.route.resource
    return resource is not None and WORKERS in resource.canonical


def _certificate(request: web.Request, trusted: tuple[str, ...]) -> str | None:
    try:
        return certificate_name(request, trusted)
    except Problem:  # nobody's; whoever needs the name says so
        return None


def _has_proved(request: web.Request) -> bool:
    """Who sends it was proved by what makes up its mark, and not by something in its body."""
    speaker = request.get(SPEAKER)
    if speaker is None:
        return request.get(CLIENT) is not None
    return bool(speaker.by == "certificate" or speaker.token == token_of(request))


@lru_cache(maxsize=4096)
def neighbourhood(address: str) -> str:
    """Whom an address stands for: of IPv6 everybody has as many as he likes within one /64."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def gate_of(request: web.Request) -> Gate:
    """The gate that a request came through."""
    return request.app[GATE]
