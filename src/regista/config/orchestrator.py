"""The settings of an orchestrator."""

import socket
from typing import ClassVar
from urllib.parse import quote

import msgspec

from .edge import CREDENTIAL_SETTINGS, EDGE_SETTINGS
from .history import HISTORY_SETTINGS
from .payloads import DEFAULT_BUCKET, DEFAULT_REGION, KEEPING_SETTINGS, PAYLOAD_SETTINGS
from .rates import RATES
from .settings import LEVEL, SECRET, SWITCH, TOKEN, ZONE, Setting, Settings, count, seconds, table, text
from .telemetry import LOG_SETTINGS, METRIC_SETTINGS, TRACE_SETTINGS
from .webhooks import WEBHOOK_SETTINGS

#: In the order of the fields below, and of docs/reference/settings.md.
SETTINGS = table(
    Setting("INSTANCE_ID", "instance_id", text("a name without blanks", r"\S+")),
    Setting(
        "REGISTA_STORAGE",
        "storage",
        text("memory, sqlite:PATH or redis://HOST", r"memory|sqlite:.+|rediss?://.+|unix://.+"),
    ),
    Setting("REDIS_HOST", "redis_host", text("a host name or address, or empty", r"\S*")),
    Setting("REDIS_PORT", "redis_port", count(1, 65535)),
    Setting("REDIS_DB", "redis_db", count(0)),
    Setting("REDIS_USER", "redis_user", text("a name without blanks, or empty", r"\S*")),
    Setting("REDIS_PASSWORD", "redis_password", TOKEN),
    Setting("REDIS_TLS", "redis_tls", SWITCH),
    Setting("REGISTA_STORE_WAIT_SECONDS", "store_wait_s", seconds(zero=True)),
    Setting(
        "HISTORY_DATABASE_URI",
        "history_database_uri",
        text("empty, sqlite:PATH or postgresql://HOST/DATABASE", r"(sqlite:.+|postgres(ql)?://.+)?"),
    ),
    *HISTORY_SETTINGS,
    Setting("BLUEPRINTS_DIR", "blueprints_dir", text("a directory, or empty", r".*")),
    Setting("TZ", "tz", ZONE),
    Setting("LOG_LEVEL", "log_level", LEVEL),
    *LOG_SETTINGS,
    *TRACE_SETTINGS,
    *METRIC_SETTINGS,
    Setting("API_HOST", "api_host", text("a host name or address", r"\S+")),
    Setting("API_PORT", "api_port", count(0, 65535)),
    *EDGE_SETTINGS,
    Setting("REGISTA_DIR", "state_dir", text("a directory", r".+")),
    Setting("CLIENT_TOKEN", "client_token", TOKEN),
    Setting("WORKER_TOKEN", "worker_token", TOKEN, also=("GLOBAL_WORKER_TOKEN",)),
    Setting("CLIENTS_CONFIG_PATH", "clients_config_path", text("a file, or empty", r".*")),
    Setting("WORKERS_CONFIG_PATH", "workers_config_path", text("a file, or empty", r".*")),
    Setting("SCHEDULES_CONFIG_PATH", "schedules_config_path", text("a file, or empty", r".*")),
    Setting("REGISTA_APPROVAL_SECRET", "approval_secret", SECRET),
    Setting("REGISTA_METRICS_TOKEN", "metrics_token", SECRET),
    Setting("ORCHESTRATOR_SECRET_KEY", "orchestrator_secret_key", TOKEN),
    Setting("WORKER_REQUIRE_SIGNATURES", "worker_require_signatures", SWITCH),
    *CREDENTIAL_SETTINGS,
    Setting("JOB_MAX_RETRIES", "job_max_retries", count(0)),
    Setting("REGISTA_HANDLER_RETRY_FIRST_SECONDS", "handler_retry_first_s", seconds(zero=True)),
    Setting("REGISTA_LOST_BUDGET", "lost_budget", count(0)),
    Setting("WORKER_TIMEOUT_SECONDS", "worker_timeout_s", seconds(zero=False)),
    Setting("REGISTA_CANCEL_GRACE_SECONDS", "cancel_grace_s", seconds(zero=True)),
    Setting("REGISTA_BLOCKING_HANDLER_THREADS", "blocking_handler_threads", count(1)),
    Setting("REGISTA_MAX_BODY_BYTES", "max_body_bytes", count(1024)),
    Setting("REGISTA_MAX_HEADER_BYTES", "max_header_bytes", count(1024)),
    Setting("REGISTA_MAX_PAGE", "max_page", count(1)),
    Setting("REGISTA_MAX_BATCH", "max_batch", count(1)),
    Setting("REGISTA_RATE_LIMITS", "rate_limits", RATES),
    Setting("REGISTA_MAX_WAIT_SECONDS", "max_wait_s", seconds(zero=False)),
    Setting("REGISTA_BODY_TIMEOUT_SECONDS", "body_timeout_s", seconds(zero=False)),
    Setting("REGISTA_STOP_GRACE_SECONDS", "stop_grace_s", seconds(zero=True)),
    *WEBHOOK_SETTINGS,
    Setting("EXECUTOR_MAX_CONCURRENT_JOBS", "executor_max_concurrent_jobs", count(1)),
    Setting("REGISTA_PATIENCE_SECONDS", "patience_s", seconds(zero=True)),
    Setting("REGISTA_LEASE_SECONDS", "lease_s", seconds(zero=False)),
    Setting("REGISTA_POLL_LEASE_SECONDS", "poll_lease_s", seconds(zero=False)),
    Setting("WORKER_POLL_TIMEOUT_SECONDS", "poll_timeout_s", seconds(zero=False)),
    Setting("WATCHER_INTERVAL_SECONDS", "watcher_interval_s", seconds(zero=False)),
    Setting("WATCHER_LIMIT", "watcher_limit", count(1)),
    *PAYLOAD_SETTINGS,
    *KEEPING_SETTINGS,
)


class Config(Settings, frozen=True, kw_only=True):
    """How one orchestrator behaves: built once, checked whole, handed to the parts that need it.

    `Config(lease_s=10)` in code, `Config.from_env()` in a process. Either raises `ConfigError`, which says
    what was expected and what was found. A secret is never shown, in `repr` or in an error.
    """

    TABLE: ClassVar = SETTINGS

    # Who and where
    instance_id: str = msgspec.field(default_factory=socket.gethostname)
    #: Unset: Redis where `redis_host` names one, else memory.
    storage: str = ""
    redis_host: str = ""
    redis_port: int = 6379
    redis_db: int = 0
    redis_user: str = ""
    redis_password: str = ""
    redis_tls: bool = False
    #: How long a store or a history that is away when we start is waited for.
    store_wait_s: float = 60.0
    history_database_uri: str = ""
    #: Name → type, for jobs of every blueprint (config/history.py).
    search_attributes: dict[str, str] = msgspec.field(default_factory=dict)
    #: Ended jobs older than this, and beyond so many, are forgotten; 0 keeps all.
    history_max_age_s: float = 0.0
    history_max_jobs: int = 0
    blueprints_dir: str = ""
    tz: str = "UTC"
    log_level: str = "INFO"
    #: Logs, traces and metrics (config/telemetry.py).
    log_format: str = "auto"
    otel_disabled: bool = False
    otel_service_name: str = "regista"
    otlp_endpoint: str = ""
    otlp_traces_endpoint: str = ""
    otlp_protocol: str = ""
    otlp_metrics_endpoint: str = ""
    api_host: str = "127.0.0.1"
    api_port: int = 8080
    #: TLS that we serve ourselves, and whom we believe about who asked (config/edge.py).
    #: None: served where a certificate is named.
    tls_enabled: bool | None = None
    tls_cert_path: str = ""
    tls_key_path: str = ""
    tls_ca_path: str = ""
    tls_require_client_cert: bool = False
    trusted_proxies: tuple[str, ...] = ()
    state_dir: str = ".regista"

    # Secrets
    client_token: str = ""
    worker_token: str = ""
    #: clients.toml and workers.toml: who else may come in (config/people.py).
    clients_config_path: str = ""
    workers_config_path: str = ""
    #: schedules.toml: what shall be started, and when (config/schedules.py).
    schedules_config_path: str = ""
    approval_secret: str = ""
    metrics_token: str = ""
    orchestrator_secret_key: str = ""
    worker_require_signatures: bool = False
    #: mixed, mtls-only or token-only; and for how long the tokens are good that we give out (config/edge.py).
    worker_auth_mode: str = "mixed"
    sts_token_s: float = 3600.0
    sts_refresh_s: float = 604_800.0

    # Tasks and handlers
    job_max_retries: int = 3
    handler_retry_first_s: float = 1.0
    lost_budget: int = 10
    worker_timeout_s: float = 300.0
    cancel_grace_s: float = 30.0
    #: Handlers declared `blocking=True` that run at once.
    blocking_handler_threads: int = 32

    # Limits of the HTTP edge
    max_body_bytes: int = 16 * 1024 * 1024
    max_header_bytes: int = 16 * 1024
    max_page: int = 1000
    max_batch: int = 10_000
    #: Context → rate, where it is not the default (config/rates.py).
    rate_limits: dict[str, str] = msgspec.field(default_factory=dict)
    max_wait_s: float = 60.0
    body_timeout_s: float = 30.0
    stop_grace_s: float = 5.0

    # What leaves the house, and what is kept of who did what (config/webhooks.py)
    #: Networks that are not public and may be told all the same.
    webhook_allow_private: tuple[str, ...] = ()
    webhook_timeout_s: float = 10.0
    webhook_concurrency: int = 32
    #: Where people reach this API, for links in messages.
    public_url: str = ""
    audit_days: int = 90

    # The machinery
    executor_max_concurrent_jobs: int = 1000
    patience_s: float = 0.02
    lease_s: float = 30.0
    poll_lease_s: float = 45.0
    poll_timeout_s: float = 30.0
    watcher_interval_s: float = 20.0
    watcher_limit: int = 500

    # Files and large values (config/payloads.py)
    payloads: str = ""
    s3_endpoint_url: str = ""
    s3_access_key: str = ""
    s3_secret_key: str = ""
    s3_region: str = DEFAULT_REGION
    s3_default_bucket: str = DEFAULT_BUCKET
    s3_max_concurrency: int = 100
    task_files_dir: str = ""
    s3_auto_cleanup: bool = True
    offload_bytes: int = 256 * 1024
    max_file_bytes: int = 5 * 1024 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.storage == "":
            storage = self.redis_url if self.redis_host else "memory"
            msgspec.structs.force_setattr(self, "storage", storage)
        super().__post_init__()

    @property
    def redis_url(self) -> str:
        """The server that the REDIS_ settings name, in one line."""
        scheme = "rediss" if self.redis_tls else "redis"
        who = f"{quote(self.redis_user, safe='')}:{quote(self.redis_password, safe='')}@"
        host = f"[{self.redis_host}]" if ":" in self.redis_host else self.redis_host
        return f"{scheme}://{who if len(who) > 2 else ''}{host}:{self.redis_port}/{self.redis_db}"
