"""Settings of the HTTP API: its address, TLS, credentials, limits and webhooks."""

import ipaddress
from typing import Annotated, Any, ClassVar

import msgspec

from .payloads import PayloadSettings
from .rates import RATES
from .settings import MAYBE, SECRET, SWITCH, TOKEN, Kind, count, env, seconds, text


def _networks(words: str) -> tuple[str, ...]:
    return tuple(part for part in (word.strip() for word in words.split(",")) if part)


def _are_networks(value: Any) -> bool:
    if not isinstance(value, tuple):
        return False
    try:
        return all(bool(ipaddress.ip_network(one, strict=False)) for one in value)
    except ValueError:
        return False


NETWORKS = Kind("addresses or networks like 10.0.0.0/8, separated by commas", _are_networks, _networks)
FILE = text("a file, or empty", r".*")

_MODES = ("mixed", "mtls-only", "token-only")
_EVERYWHERE = ("0.0.0.0/0", "::/0")


def _parse_private(words: str) -> tuple[str, ...]:
    match words.strip().lower():
        case "true" | "1" | "yes" | "on":
            return _EVERYWHERE
        case "false" | "0" | "no" | "off":
            return ()
    return tuple(part for part in (word.strip() for word in words.split(",")) if part)


def _are_exact_networks(value: Any) -> bool:
    try:
        return isinstance(value, tuple) and all(bool(ipaddress.ip_network(one)) for one in value)
    except ValueError:
        return False


_PRIVATE_NETWORKS = Kind(
    "true, false, or networks like 10.0.0.0/8, separated by commas", _are_exact_networks, _parse_private
)


class EdgeSettings(PayloadSettings, frozen=True, kw_only=True):
    """How an orchestrator serves HTTP, whom it accepts, and what it sends out."""

    SECTIONS: ClassVar = {
        **PayloadSettings.SECTIONS,
        "api_host": "The HTTP API",
        "client_token": "Secrets",
        "max_body_bytes": "Limits of the HTTP API",
        "webhook_allow_private": "Webhooks and the audit trail",
    }

    api_host: Annotated[
        str,
        env(
            "API_HOST",
            kind=text("a host name or address", "\\S+"),
            help=(
                "The address that the orchestrator listens on. Beyond loopback (`0.0.0.0`, a name, an address of "
                "the network) it serves only with `CLIENT_TOKEN` and `WORKER_TOKEN` set; otherwise the start is "
                "refused."
            ),
        ),
    ] = "127.0.0.1"
    api_port: Annotated[
        int,
        env(
            "API_PORT",
            kind=count(0, 65535),
            help=(
                "The port that the orchestrator listens on, up to 65535. `0` takes any free one; `regista serve` "
                "prints which."
            ),
        ),
    ] = 8080
    tls_enabled: Annotated[
        bool | None,
        env(
            "TLS_ENABLED",
            kind=MAYBE,
            help=(
                "Whether the orchestrator serves TLS itself. Unset means: where `TLS_CERT_PATH` is set. `false` "
                "serves plain HTTP all the same, for a certificate that is named for somebody else; `true` "
                "without a certificate stops the start. See [Serve TLS](../howto/tls.md)."
            ),
        ),
    ] = None
    tls_cert_path: Annotated[
        str,
        env(
            "TLS_CERT_PATH",
            kind=FILE,
            help=(
                "The certificate that the orchestrator shows, in PEM, with the intermediate ones behind it. Read "
                "at the start, and again on SIGHUP. A file that is missing, cannot be read or does not fit its "
                "key stops the start."
            ),
        ),
    ] = ""
    tls_key_path: Annotated[
        str,
        env(
            "TLS_KEY_PATH",
            kind=FILE,
            help=(
                "The key of that certificate, in PEM and without a passphrase. Empty means that it lies in the "
                "same file."
            ),
        ),
    ] = ""
    tls_ca_path: Annotated[
        str,
        env(
            "TLS_CA_PATH",
            kind=FILE,
            help=(
                "The authority whose client certificates are known: a worker may then come with one, whose common"
                " name is its id, instead of a token. Empty asks nobody for a certificate."
            ),
        ),
    ] = ""
    tls_require_client_cert: Annotated[
        bool,
        env(
            "TLS_REQUIRE_CLIENT_CERT",
            kind=SWITCH,
            help=(
                "Whether everybody, clients too, must show a certificate of `TLS_CA_PATH`. Whoever has none does "
                "not get through the handshake."
            ),
        ),
    ] = False
    trusted_proxies: Annotated[
        tuple[str, ...],
        env(
            "REGISTA_TRUSTED_PROXIES",
            kind=NETWORKS,
            help=(
                "Addresses or networks, separated by commas (`172.31.250.10, 10.0.0.0/8`), of the proxies before "
                "this orchestrator. Only from these are `X-Forwarded-For`, `X-Forwarded-Proto`, "
                "`X-Client-Cert-CN` and `X-Client-Cert-Verify` believed; from anybody else they mean nothing."
            ),
        ),
    ] = ()
    client_token: Annotated[
        str,
        env(
            "CLIENT_TOKEN",
            kind=TOKEN,
            help=(
                "The token that clients send (`X-Client-Token`, or `Authorization: Bearer`). Whoever has it is an"
                " operator and sees every job. Empty on loopback means: one is made once and kept in "
                "`REGISTA_DIR/client.token`."
            ),
        ),
    ] = ""
    worker_token: Annotated[
        str,
        env(
            "WORKER_TOKEN",
            "GLOBAL_WORKER_TOKEN",
            kind=TOKEN,
            help=(
                "The token that every worker may use (`X-Worker-Token`); `GLOBAL_WORKER_TOKEN` is another name "
                "for it. Empty on loopback means: one is made once and kept in `REGISTA_DIR/worker.token`."
            ),
        ),
    ] = ""
    clients_config_path: Annotated[
        str,
        env(
            "CLIENTS_CONFIG_PATH",
            kind=text("a file, or empty", ".*"),
            help=(
                "The file of clients (`clients.toml`): [who may come in](../howto/access.md). With it, "
                "`CLIENT_TOKEN` is needed no more; where both are set, both count."
            ),
        ),
    ] = ""
    workers_config_path: Annotated[
        str,
        env(
            "WORKERS_CONFIG_PATH",
            kind=text("a file, or empty", ".*"),
            help=(
                "The file of workers with a token of their own (`workers.toml`). Others may come in with "
                "`WORKER_TOKEN`, if that is set."
            ),
        ),
    ] = ""
    approval_secret: Annotated[
        str,
        env(
            "REGISTA_APPROVAL_SECRET",
            kind=SECRET,
            help=(
                "The key that signs approval tokens, at least 16 characters. Empty means: one is made at random "
                "and kept with the storage, so links that were sent out stay good after a restart. Set it where "
                "several storages must accept each other's links."
            ),
        ),
    ] = ""
    metrics_token: Annotated[
        str,
        env(
            "REGISTA_METRICS_TOKEN",
            kind=SECRET,
            help=(
                "What whoever reads `/_public/metrics` must bring as `Authorization: Bearer …`. Empty lets "
                "everybody read it who can reach it."
            ),
        ),
    ] = ""
    orchestrator_secret_key: Annotated[
        str,
        env(
            "ORCHESTRATOR_SECRET_KEY",
            kind=TOKEN,
            help=(
                "The key with which tasks are signed on their way to workers, for those that check it. Empty "
                "means: tasks are not signed."
            ),
        ),
    ] = ""
    worker_require_signatures: Annotated[
        bool,
        env(
            "WORKER_REQUIRE_SIGNATURES",
            kind=SWITCH,
            help=(
                "Whether a message of a worker must be signed. A signature that is there is always checked; "
                "`true` refuses messages that have none."
            ),
        ),
    ] = False
    worker_auth_mode: Annotated[
        str,
        env(
            "WORKER_AUTH_MODE",
            kind=Kind(f"one of {', '.join(_MODES)}", _MODES.__contains__),
            help=(
                "What workers may come with: `mixed` (a certificate or a token), `mtls-only` (a certificate with "
                "every request) or `token-only` (certificates mean nothing). `mtls-only` needs `TLS_CA_PATH` with"
                " a certificate of our own, or `REGISTA_TRUSTED_PROXIES`: without, no worker could come in, and "
                "the start is refused."
            ),
        ),
    ] = "mixed"
    sts_token_s: Annotated[
        float,
        env(
            "REGISTA_STS_TOKEN_SECONDS",
            kind=seconds(zero=False),
            help=(
                "How long a short-lived worker token is good. The worker renews it before that, without anybody's"
                " help."
            ),
        ),
    ] = 3600.0
    sts_refresh_s: Annotated[
        float,
        env(
            "REGISTA_STS_REFRESH_SECONDS",
            kind=seconds(zero=False),
            help=(
                "How long a login that nobody renews is kept. A worker that was away for longer begins anew with "
                "its certificate or its configured token; one that came with a one-time password needs another "
                "one."
            ),
        ),
    ] = 604800.0
    max_body_bytes: Annotated[
        int,
        env(
            "REGISTA_MAX_BODY_BYTES",
            kind=count(1024),
            help=(
                "The largest body of a request, in bytes. A larger one is refused with 413 before all of it is "
                "read."
            ),
        ),
    ] = 16 * 1024 * 1024
    max_header_bytes: Annotated[
        int,
        env(
            "REGISTA_MAX_HEADER_BYTES",
            kind=count(1024),
            help=(
                "The longest request line, and the longest single header, in bytes. Longer ones are refused with "
                "400."
            ),
        ),
    ] = 16 * 1024
    max_page: Annotated[
        int,
        env(
            "REGISTA_MAX_PAGE",
            kind=count(1),
            help="The most items on one page of a list, whatever the request asks for in `limit`.",
        ),
    ] = 1000
    max_batch: Annotated[
        int,
        env(
            "REGISTA_MAX_BATCH",
            kind=count(1),
            help=(
                "The most jobs in one `POST /api/v1/jobs:batch`, and the most ids in one `POST "
                "/api/v1/jobs:wait`. More are refused with 400."
            ),
        ),
    ] = 10000
    rate_limits: Annotated[
        dict[str, str],
        env(
            "REGISTA_RATE_LIMITS",
            kind=RATES,
            help=(
                'JSON of contexts and rates, like `{"submit": "100/s", "public": "600/m", "event": "off"}`; a '
                "context that is not named keeps its default. The contexts, their defaults and who is counted: "
                "[Say how often](../howto/limits.md). Refused is answered with 429 `rate_limited`."
            ),
        ),
    ] = msgspec.field(default_factory=dict)
    max_wait_s: Annotated[
        float,
        env(
            "REGISTA_MAX_WAIT_SECONDS",
            kind=seconds(zero=False),
            help=(
                "The longest that a request may wait for a job (`?wait=`, `jobs:wait`). A longer wish is cut to "
                "it; the caller asks again."
            ),
        ),
    ] = 60.0
    body_timeout_s: Annotated[
        float,
        env(
            "REGISTA_BODY_TIMEOUT_SECONDS",
            kind=seconds(zero=False),
            help=(
                "How long a client may take to send the body of its request. Slower ones are refused with 408. A "
                "new connection has as long for the head of its first request, and is closed without a word when "
                "it does not come."
            ),
        ),
    ] = 30.0
    stop_grace_s: Annotated[
        float,
        env(
            "REGISTA_STOP_GRACE_SECONDS",
            kind=seconds(zero=True),
            help=(
                "How long tasks in the orchestrator's own process may go on after it was told to stop. What is "
                "not done by then is done again after the next start."
            ),
        ),
    ] = 5.0
    webhook_allow_private: Annotated[
        tuple[str, ...],
        env(
            "REGISTA_WEBHOOK_ALLOW_PRIVATE",
            kind=_PRIVATE_NETWORKS,
            help=(
                "Networks that are not public and may be told by [webhooks](../howto/webhooks.md) all the same, "
                "separated by commas: `10.20.0.0/16,127.0.0.1/32`. `true` allows every address, `false` (the "
                "default) only public ones."
            ),
        ),
    ] = ()
    webhook_timeout_s: Annotated[
        float,
        env(
            "REGISTA_WEBHOOK_TIMEOUT_SECONDS",
            kind=seconds(zero=False),
            help=(
                "How long a receiver may take to answer, from the look-up of its name on. A delivery that was "
                "taken on and not noted is anybody's again after twice that and two seconds."
            ),
        ),
    ] = 10.0
    webhook_concurrency: Annotated[
        int,
        env(
            "REGISTA_WEBHOOK_CONCURRENCY",
            kind=count(1),
            help=(
                "How many deliveries this orchestrator has under way at a time, at most; four of them to one "
                "host, and one to a host that is slow."
            ),
        ),
    ] = 32
    public_url: Annotated[
        str,
        env(
            "REGISTA_PUBLIC_URL",
            kind=text("a URL like https://jobs.example.com, or empty", "(https?://[^\\s/?#]+[^\\s?#]*)?"),
            help=(
                "Where people reach this API, for links in messages: what the `url` of an approval begins with. "
                "Without it they are paths, and whoever passes them on adds the rest."
            ),
        ),
    ] = ""
    audit_days: Annotated[
        int,
        env(
            "REGISTA_AUDIT_DAYS",
            kind=count(1),
            help=(
                "How long it is kept who did what (`GET /api/v1/audit`); of more than 100,000 records the oldest "
                "go first, however young they are."
            ),
        ),
    ] = 90
