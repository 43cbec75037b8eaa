"""The settings of a worker process."""

from typing import Any, ClassVar

import msgspec

from .settings import LEVEL, MAYBE, TOKEN, Kind, Setting, Settings, seconds, shaped, table, text


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
