"""Authentication of clients, and the limit on wrong credentials per address.

Workers authenticate in `worker_auth`; the failures of both are counted here.
"""

import logging
from collections.abc import Callable

from aiohttp import hdrs, web

from ..config import Config
from ..config.rates import Context
from ..log_throttle import LogThrottle
from ..model import ClientConfig, Rate
from ..workers.protocol.messages import ID_HEADER, TOKEN_HEADER
from .authenticator import Authenticator
from .buckets import Bucket
from .network import certificate_name, client_address
from .parameters import token_in
from .problems import Problem
from .rate_limits import COUNTED, RateLimiter, address_group
from .worker_protocol.auth import WORKER_IDENTITY, token_of

log = logging.getLogger("regista.workers")

CLIENT_TOKEN_HEADER = "X-Client-Token"
_CHALLENGE = {"WWW-Authenticate": "Bearer"}

#: Good credentials, addresses with failures and wrong credentials that are remembered, at most.
MAX_REMEMBERED = 100_000
#: Codes of wrong secrets that a URL contains: each refusal is a new guess.
GUESS_CODES = frozenset({"token_wrong", "link_invalid"})
#: Refusals that are about more than the credential: with the same one each of them may be another guess.
_EACH_IS_A_GUESS = GUESS_CODES | {
    "signature_missing",
    "signature_wrong",
    "timestamp_missing",
    "timestamp_out_of_range",
}


def authenticate_client(request: web.Request, authenticator: Authenticator) -> ClientConfig:
    """Return the client whose token the request contains; 401 without a known one."""
    token = token_in(request, CLIENT_TOKEN_HEADER)
    if not token:
        raise Problem(
            401,
            "token_missing",
            "expected a client token in X-Client-Token or Authorization: Bearer, got none",
            headers=_CHALLENGE,
        )
    client = authenticator.client(token)
    if client is None:
        raise Problem(401, "token_unknown", "this client token is not known here", headers=_CHALLENGE)
    return client


class AuthFailures:
    """Limits wrong credentials per address.

    An address with too many failures is refused without a look at its credentials, except those that were good from
    there before: a broken worker must not lock out its neighbours behind the same address. The same wrong credential
    again is no new guess; it has a limit of its own.
    """

    def __init__(self, limiter: RateLimiter, config: Config) -> None:
        self._limits = limiter.limits
        self._too_many = limiter.too_many_requests
        self._rate = self._limits.rate(Context.AUTH)
        self._trusted_proxies = config.trusted_proxies
        self._certificates = config.worker_auth_mode != "token-only"
        #: Addresses with failures in the last window; usually none.
        self._failing: dict[str, Bucket] = {}
        #: Hashes of (address, credential) that were good; never the credentials themselves.
        self._good: set[int] = set()
        #: Hashes of (address, credential) that were refused in the last window, each with its own limit.
        self._refused: dict[int, Bucket] = {}

    def check(self, request: web.Request, *, worker: bool = False) -> int:
        """Raise 429 if the address has failed too often. Returns a hash of the address and the credentials."""
        mark = self._mark(request, worker)
        if self._failing and mark not in self._good:
            self._check_address(_address(request), mark)
        return mark

    def remember(self, mark: int) -> None:
        """The credentials of a request were good: its address is not refused with them later."""
        if mark not in self._good:
            if len(self._good) >= MAX_REMEMBERED:
                self._good.clear()
            self._good.add(mark)

    def remember_worker(self, request: web.Request, mark: int) -> None:
        """The same after a worker's request, if the credentials were in its headers and not in its body."""
        speaker = request.get(WORKER_IDENTITY)
        if speaker is not None and (speaker.by == "certificate" or speaker.token == token_of(request)):
            self.remember(mark)

    def record(self, request: web.Request, problem: Problem, mark: int, *, worker: bool = False) -> None:
        """Count a refused request if its credentials were wrong."""
        if self._rate is None or (problem.status != 401 and problem.code not in GUESS_CODES):
            return
        self._good.discard(mark)  # whatever else these credentials are good for, they can be used to guess
        address = _address(request)
        bucket = self._limits.bucket(Context.AUTH, address, self._rate)
        own = None
        if problem.code not in _EACH_IS_A_GUESS:
            own = self._bucket_of_credential(request, self._rate, worker)
        if own is None or self._is_first(own):
            self._limits.charge(bucket)
        self._failing[address] = bucket
        request[COUNTED] = bucket if own is None else min(bucket, own, key=Bucket.left)
        if len(self._failing) > MAX_REMEMBERED:
            self._failing = {}

    def _mark(self, request: web.Request, worker: bool) -> int:
        """A certificate counts only for workers."""
        name = _certificate(request, self._trusted_proxies) if worker and self._certificates else None
        header = request.headers.get
        credentials = header(CLIENT_TOKEN_HEADER), header(TOKEN_HEADER), header(hdrs.AUTHORIZATION)
        return hash((_address(request), name, credentials))

    def _check_address(self, address: str, mark: int) -> None:
        bucket = self._failing.get(address)
        if bucket is None:
            return
        own = self._refused.get(mark)
        if own is not None and self._limits.is_spent(own):
            raise self._too_many(own)
        if self._limits.is_spent(bucket):
            raise self._too_many(bucket)
        if bucket.left() >= bucket.rate.limit and own is None:
            del self._failing[address]

    def _bucket_of_credential(self, request: web.Request, rate: Rate, worker: bool) -> Bucket:
        """The limit of one wrong credential. One that was in the body (a refresh token) has one, too."""
        mark, speaker = self._mark(request, worker), request.get(WORKER_IDENTITY)
        if speaker is not None and speaker.token != token_of(request):
            mark = hash((mark, speaker.token))
        if len(self._refused) >= MAX_REMEMBERED:
            self._refused = {}
        own = self._refused.get(mark)
        if own is None or own.rate != rate:
            own = Bucket(Context.AUTH, str(mark), rate, self._limits.now(), shared=False)
            self._refused[mark] = own
        return own

    def _is_first(self, own: Bucket) -> bool:
        """Count a refusal of this credential; True for the first one in a window."""
        now = self._limits.now()
        first = own.is_full(now)
        own.charge(1, now)
        return first


def _address(request: web.Request) -> str:
    return address_group(client_address(request))


def _certificate(request: web.Request, trusted: tuple[str, ...]) -> str | None:
    try:
        return certificate_name(request, trusted)
    except Problem:  # a certificate without a usable name; whoever needs the name reports it
        return None


#: Seconds between two log lines about one address.
_LOG_EVERY_S = 60.0
#: Refusals of an identity. A short-lived token that has expired is none: its worker renews it by itself.
_IDENTITY_STATUSES = frozenset({401, 403})
_EXPECTED_CODES = frozenset({"token_expired"})
_TOKEN_CODES = frozenset({"token_missing", "token_unknown"})
_ADVICE = "; give it the WORKER_TOKEN of this orchestrator, or its own of workers.toml"


class RejectedWorkerLog:
    """Logs which workers were rejected and why, at most one line a minute for each address."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._throttle = LogThrottle(elapsed, _LOG_EVERY_S)

    def write(self, request: web.Request, problem: Problem) -> None:
        """Log a refused request of a worker. Its credentials are never written."""
        if problem.status not in _IDENTITY_STATUSES or problem.code in _EXPECTED_CODES:
            return
        address = client_address(request)
        if self._throttle.is_due(address):
            worker_id = request.headers.get(ID_HEADER) or request.match_info.get("worker_id") or "unknown"
            log.warning(
                "rejected worker %s from %s: %s (%s)%s",
                worker_id[:128],
                address,
                problem.detail,
                problem.code,
                _ADVICE if problem.code in _TOKEN_CODES else "",
                extra={"action": "worker_turned_away", "worker_id": worker_id[:128], "address": address},
            )
