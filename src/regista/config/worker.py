"""The settings of a worker process."""

from typing import Any, ClassVar

import msgspec

from .edge import TLS_SETTINGS
from .payloads import DEFAULT_BUCKET, DEFAULT_REGION, PAYLOAD_SETTINGS
from .settings import LEVEL, MAYBE, SWITCH, TOKEN, Kind, Setting, Settings, seconds, shaped, table, text
from .telemetry import LOG_SETTINGS, TRACE_SETTINGS


def _names(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]


_NAMES = Kind(
    "names, separated by commas",
    lambda value: isinstance(value, list) and all(isinstance(name, str) and name for name in value),
    _names,
)
_COUNT_OR_AUTO = Kind(
    "a whole number, 0 (find out) or more",
    lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0,
    int,
)
_URL = text("an http or https URL", r"(https?://\S+)?")
_MODES = Kind("FAILOVER or ROUND_ROBIN", ("FAILOVER", "ROUND_ROBIN").__contains__, str.upper)

#: In the order of the fields below, and of docs/reference/settings.md.
WORKER_SETTINGS = table(
    Setting("WORKER_ID", "worker_id", text("letters, digits, _ and -, at most 128", r"[A-Za-z0-9_-]{0,128}")),
    Setting("WORKER_TYPE", "worker_type", text("a name", r".*")),
    Setting("WORKER_QUEUES", "queues", _NAMES),
    Setting("MAX_CONCURRENT_TASKS", "max_concurrent_tasks", _COUNT_OR_AUTO),
    Setting("ORCHESTRATOR_URL", "orchestrator_url", _URL, also=("REGISTA_URL",)),
    Setting(
        "ORCHESTRATORS_CONFIG",
        "orchestrators",
        shaped('a JSON list of {"url": …}', list[dict[str, Any]], secret=True),
    ),
    Setting("MULTI_ORCHESTRATOR_MODE", "multi_orchestrator_mode", _MODES),
    Setting("WORKER_TOKEN", "token", TOKEN, also=("GLOBAL_WORKER_TOKEN",)),
    Setting("WORKER_INDIVIDUAL_TOKEN", "individual_token", TOKEN),
    Setting("REGISTA_TOKEN", "one_time_password", TOKEN),
    Setting("WORKER_USE_STS", "use_sts", SWITCH),
    *TLS_SETTINGS,
    Setting("REGISTA_DIR", "state_dir", text("a directory", r".+")),
    Setting("WORKER_ENABLE_WEBSOCKETS", "enable_websockets", MAYBE),
    Setting("HEARTBEAT_INTERVAL", "heartbeat_interval_s", seconds(zero=False)),
    Setting("TASK_POLL_TIMEOUT", "poll_timeout_s", seconds(zero=False)),
    Setting("WORKER_SHUTDOWN_TIMEOUT", "shutdown_timeout_s", seconds(zero=True)),
    Setting("WORKER_LABELS", "labels", shaped("a JSON object", dict[str, Any])),
    Setting("WORKER_ZONE", "zone", text("a name, or empty", r"\S*")),
    Setting("COST_PER_SECOND", "cost_per_second", seconds(zero=True)),
    Setting("COST_PER_SKILL", "cost_per_skill", shaped("a JSON object of numbers", dict[str, float])),
    Setting("INSTALLED_SOFTWARE", "installed_software", shaped("a JSON object of text", dict[str, str])),
    Setting("INSTALLED_MODELS", "installed_models", shaped("a JSON list", list[Any])),
    Setting("WORKER_LOG_LEVEL", "log_level", LEVEL),
    *LOG_SETTINGS,
    *TRACE_SETTINGS,
    *PAYLOAD_SETTINGS,
)


class WorkerConfig(Settings, frozen=True, kw_only=True):
    """How one worker process behaves. `Worker(...)` arguments win over it."""

    TABLE: ClassVar = WORKER_SETTINGS

    #: Empty: made up at the start.
    worker_id: str = ""
    worker_type: str = "regista"
    #: Empty: any queue.
    queues: list[str] = msgspec.field(default_factory=list)
    #: 0: what the `Worker` says.
    max_concurrent_tasks: int = 0

    #: Empty: the one that an orchestrator on this machine left in `state_dir`; else http://127.0.0.1:8080.
    orchestrator_url: str = ""
    #: Takes the place of `orchestrator_url`: [{"url", "token"?, "priority"=10, "weight"=1}].
    orchestrators: list[dict[str, Any]] = msgspec.field(default_factory=list)
    multi_orchestrator_mode: str = "FAILOVER"
    token: str = ""
    individual_token: str = ""
    #: Traded for short-lived tokens at the first registration.
    one_time_password: str = ""
    #: Trade the configured token, too.
    use_sts: bool = False
    #: Whose certificate an orchestrator must show (empty: those that this machine trusts), and what we show it.
    tls_ca_path: str = ""
    tls_cert_path: str = ""
    tls_key_path: str = ""
    #: Where an orchestrator on this machine leaves its token.
    state_dir: str = ".regista"
    #: None: the stream if it can be had, else long-poll. False: long-poll only.
    enable_websockets: bool | None = None
    heartbeat_interval_s: float = 10.0
    poll_timeout_s: float = 30.0
    shutdown_timeout_s: float = 30.0

    labels: dict[str, Any] = msgspec.field(default_factory=dict)
    zone: str = ""
    cost_per_second: float = 0.0
    cost_per_skill: dict[str, float] = msgspec.field(default_factory=dict)
    installed_software: dict[str, str] = msgspec.field(default_factory=dict)
    installed_models: list[Any] = msgspec.field(default_factory=list)
    log_level: str = "INFO"
    #: Logs and traces (config/telemetry.py).
    log_format: str = "auto"
    otel_disabled: bool = False
    otel_service_name: str = "regista-worker"
    otlp_endpoint: str = ""
    otlp_traces_endpoint: str = ""
    otlp_protocol: str = ""

    # Files (config/payloads.py): where the orchestrator has them
    payloads: str = ""
    s3_endpoint_url: str = ""
    s3_access_key: str = ""
    s3_secret_key: str = ""
    s3_region: str = DEFAULT_REGION
    s3_default_bucket: str = DEFAULT_BUCKET
    s3_max_concurrency: int = 100
    task_files_dir: str = ""
