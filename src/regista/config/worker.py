"""The settings of a worker process."""

from typing import Annotated, Any, ClassVar

import msgspec

from .edge import FILE
from .payloads import PayloadSettings
from .settings import LEVEL, MAYBE, SWITCH, TOKEN, Kind, env, seconds, shaped, text
from .telemetry import ServiceName


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


class WorkerConfig(PayloadSettings, frozen=True, kw_only=True):
    """How one worker process behaves. `Worker(...)` arguments win over it."""

    SECTIONS: ClassVar = {**PayloadSettings.SECTIONS, "worker_id": "Workers"}

    otel_service_name: ServiceName = "regista-worker"
    worker_id: Annotated[
        str,
        env(
            "WORKER_ID",
            kind=text("letters, digits, _ and -, at most 128", "[A-Za-z0-9_-]{0,128}"),
            help=(
                "The name of this worker among all: letters, digits, `_` and `-`, at most 128. Empty means: one "
                "is made up at the start, from the host's name and chance. A worker that keeps its name over a "
                "restart finds its tasks again."
            ),
        ),
    ] = ""
    worker_type: Annotated[
        str,
        env(
            "WORKER_TYPE",
            kind=text("a name", ".*"),
            help="What kind of worker this is, in words of your own; shown beside its name and not interpreted.",
        ),
    ] = "regista"
    queues: Annotated[
        list[str],
        env(
            "WORKER_QUEUES",
            kind=_NAMES,
            help=(
                "The queues that this worker takes tasks from, separated by commas. Empty means: any queue. A "
                "task needs its queue *and* its skill."
            ),
        ),
    ] = msgspec.field(default_factory=list)
    max_concurrent_tasks: Annotated[
        int,
        env(
            "MAX_CONCURRENT_TASKS",
            kind=_COUNT_OR_AUTO,
            help="How many tasks the worker runs at a time. `0` means: what its `Worker(concurrency=…)` says.",
        ),
    ] = 0
    orchestrator_url: Annotated[
        str,
        env(
            "ORCHESTRATOR_URL",
            "REGISTA_URL",
            kind=_URL,
            help=(
                "Where the orchestrator is; `REGISTA_URL` is another name for it. Empty means: where an "
                "orchestrator on this machine says in `REGISTA_DIR/url` that it is, else `http://127.0.0.1:8080`."
                " A worker whose orchestrator is not there yet says so once, and waits for it."
            ),
        ),
    ] = ""
    orchestrators: Annotated[
        list[dict[str, Any]],
        env(
            "ORCHESTRATORS_CONFIG",
            kind=shaped('a JSON list of {"url": …}', list[dict[str, Any]], secret=True),
            help=(
                'Several orchestrators, as a JSON list: `[{"url": …, "token"?: …, "priority"?: 10, "weight"?: '
                "1}]`. It takes the place of `ORCHESTRATOR_URL`."
            ),
        ),
    ] = msgspec.field(default_factory=list)
    multi_orchestrator_mode: Annotated[
        str,
        env(
            "MULTI_ORCHESTRATOR_MODE",
            kind=_MODES,
            help=(
                "What to do with several: `FAILOVER` works for the first that can be reached, in the order of "
                "their priorities; `ROUND_ROBIN` works for all of them, by weight, and never takes more tasks "
                "than it has slots."
            ),
        ),
    ] = "FAILOVER"
    token: Annotated[
        str,
        env(
            "WORKER_TOKEN",
            "GLOBAL_WORKER_TOKEN",
            kind=TOKEN,
            help=(
                "The token that the worker shows. Empty means: `regista worker` takes the one that a local "
                "orchestrator left in `REGISTA_DIR/worker.token`."
            ),
        ),
    ] = ""
    individual_token: Annotated[
        str,
        env(
            "WORKER_INDIVIDUAL_TOKEN",
            kind=TOKEN,
            help=(
                "The token of this worker alone, where the orchestrator has one for its name. It wins over "
                "`WORKER_TOKEN`."
            ),
        ),
    ] = ""
    one_time_password: Annotated[
        str,
        env(
            "REGISTA_TOKEN",
            kind=TOKEN,
            help=(
                "A one-time password (`regista tokens otp`) for a worker that has nothing else: it trades it for "
                "short-lived tokens when it registers first, and renews those from then on. Good once and for "
                "five minutes, so it is for workers that are started by somebody."
            ),
        ),
    ] = ""
    use_sts: Annotated[
        bool,
        env(
            "WORKER_USE_STS",
            kind=SWITCH,
            help=(
                "Whether the worker trades its configured token for short-lived ones, too, so that the configured"
                " one is sent once and not with every request. With `REGISTA_TOKEN` it always does."
            ),
        ),
    ] = False
    tls_ca_path: Annotated[
        str,
        env(
            "TLS_CA_PATH",
            kind=FILE,
            help=(
                "The authority that must have signed the orchestrator's certificate, in PEM. Empty trusts whom "
                "this machine trusts."
            ),
        ),
    ] = ""
    tls_cert_path: Annotated[
        str,
        env(
            "TLS_CERT_PATH",
            kind=FILE,
            help=(
                "The worker's own certificate, in PEM. Its common name must be the id of the worker "
                "(`WORKER_ID`); then no token is needed."
            ),
        ),
    ] = ""
    tls_key_path: Annotated[
        str,
        env(
            "TLS_KEY_PATH",
            kind=FILE,
            help="The key of the worker's own certificate, in PEM. Empty means that it lies in the same file.",
        ),
    ] = ""
    state_dir: Annotated[
        str,
        env(
            "REGISTA_DIR",
            kind=text("a directory", ".+"),
            help=(
                "The directory in which an orchestrator on this machine leaves its worker token and its address. "
                "A worker that was not given the one or the other looks there whenever it tries to connect (for "
                "the token: to a loopback address), so it may be started before the orchestrator."
            ),
        ),
    ] = ".regista"
    enable_websockets: Annotated[
        bool | None,
        env(
            "WORKER_ENABLE_WEBSOCKETS",
            kind=MAYBE,
            help=(
                "`false` means long polls only. Unset, or `true`: the stream over a WebSocket if it can be had, "
                "long polls as long as it cannot."
            ),
        ),
    ] = None
    heartbeat_interval_s: Annotated[
        float,
        env(
            "HEARTBEAT_INTERVAL",
            kind=seconds(zero=False),
            help=(
                "How often a polling worker says that it is alive, in seconds. On the stream the orchestrator "
                "says how often."
            ),
        ),
    ] = 10.0
    poll_timeout_s: Annotated[
        float,
        env(
            "TASK_POLL_TIMEOUT",
            kind=seconds(zero=False),
            help="How long the worker asks the orchestrator to hold a poll open when there is no task for it.",
        ),
    ] = 30.0
    shutdown_timeout_s: Annotated[
        float,
        env(
            "WORKER_SHUTDOWN_TIMEOUT",
            kind=seconds(zero=True),
            help=(
                "How long running tasks may go on after the worker was told to stop. What is not done by then is "
                "handed back and done elsewhere."
            ),
        ),
    ] = 30.0
    labels: Annotated[
        dict[str, Any],
        env(
            "WORKER_LABELS",
            kind=shaped("a JSON object", dict[str, Any]),
            help='What requirements of tasks can ask for, as a JSON object: `{"zone": "eu", "disk": "ssd"}`.',
        ),
    ] = msgspec.field(default_factory=dict)
    zone: Annotated[
        str,
        env(
            "WORKER_ZONE",
            kind=text("a name, or empty", "\\S*"),
            help="Where the worker is, in a word of your own; tasks can require or prefer it.",
        ),
    ] = ""
    cost_per_second: Annotated[
        float,
        env(
            "COST_PER_SECOND",
            kind=seconds(zero=True),
            help=(
                "What a second of this worker costs, in a unit of your own. `max_cost` of a task and the "
                "strategies that look at prices compare it."
            ),
        ),
    ] = 0.0
    cost_per_skill: Annotated[
        dict[str, float],
        env(
            "COST_PER_SKILL",
            kind=shaped("a JSON object of numbers", dict[str, float]),
            help=(
                "A price per second for single skills, as a JSON object of numbers; it wins over "
                "`COST_PER_SECOND` for those."
            ),
        ),
    ] = msgspec.field(default_factory=dict)
    installed_software: Annotated[
        dict[str, str],
        env(
            "INSTALLED_SOFTWARE",
            kind=shaped("a JSON object of text", dict[str, str]),
            help=(
                'What is installed, as a JSON object of names and versions: `{"ffmpeg": "7.1"}`. Tasks can '
                "require it."
            ),
        ),
    ] = msgspec.field(default_factory=dict)
    installed_models: Annotated[
        list[Any],
        env(
            "INSTALLED_MODELS",
            kind=shaped("a JSON list", list[Any]),
            help=(
                'Which models are there, as a JSON list of names or of `{"name", "version"}`. Tasks can require '
                "them."
            ),
        ),
    ] = msgspec.field(default_factory=list)
    log_level: Annotated[
        str,
        env(
            "WORKER_LOG_LEVEL",
            kind=LEVEL,
            help=(
                "The least important level that the worker logs: `DEBUG`, `INFO`, `WARNING`, `ERROR` or "
                "`CRITICAL`."
            ),
        ),
    ] = "INFO"
