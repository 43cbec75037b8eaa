"""The settings of an orchestrator."""

import socket
from typing import Annotated, ClassVar
from urllib.parse import quote

import msgspec

from .edge import EdgeSettings
from .history import ATTRIBUTES
from .settings import LEVEL, SWITCH, TOKEN, ZONE, count, env, seconds, text
from .telemetry import URL


class Config(EdgeSettings, frozen=True, kw_only=True):
    """How one orchestrator behaves: built once, checked whole, handed to the parts that need it.

    `Config(lease_s=10)` in code, `Config.from_env()` in a process. Either raises `ConfigError`, which says
    what was expected and what was found. A secret is never shown, in `repr` or in an error.
    """

    SECTIONS: ClassVar = {
        **EdgeSettings.SECTIONS,
        "instance_id": "Instance, storage and history",
        "job_max_retries": "Tasks and handlers",
        "executor_max_concurrent_jobs": "Executor, leases and chores",
    }

    instance_id: Annotated[
        str,
        env(
            "INSTANCE_ID",
            kind=text("a name without blanks", "\\S+"),
            help=(
                "The name of this orchestrator among its peers. It marks whose lease a job is under. Two "
                "orchestrators that share a storage need different names: on a Redis the process id is added to "
                "the host name, where nothing is set. One that keeps its name over a restart takes back at once "
                "what it was deciding when it was killed; otherwise others take that on when its lease "
                "(`REGISTA_LEASE_SECONDS`) is over."
            ),
        ),
    ] = msgspec.field(default_factory=socket.gethostname)
    storage: Annotated[
        str,
        env(
            "REGISTA_STORAGE",
            kind=text("memory, sqlite:PATH or redis://HOST", "memory|sqlite:.+|rediss?://.+|unix://.+"),
            help=(
                "Where jobs live: `memory` (gone when the process ends), `sqlite:PATH` (one file, owned by one "
                "process, durable through `kill -9` and power cuts) or `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`"
                " (`rediss://` with TLS; several orchestrators may share it, see [Run on "
                "Redis](../howto/redis.md)). Where `REDIS_HOST` is set, that server is the default. `regista "
                "serve` and `regista dev` otherwise have another default, `sqlite:` with the file `jobs.db` in "
                "`REGISTA_DIR`; they make that directory, and no other."
            ),
        ),
    ] = ""
    redis_host: Annotated[
        str,
        env(
            "REDIS_HOST",
            kind=text("a host name or address, or empty", "\\S*"),
            help=(
                "The host of a Redis (7 or newer) or Valkey. Once it is set, jobs live there unless "
                "`REGISTA_STORAGE` or `--storage` names another place."
            ),
        ),
    ] = ""
    redis_port: Annotated[
        int,
        env(
            "REDIS_PORT",
            kind=count(1, 65535),
            help="The port of the server that `REDIS_HOST` names. With TLS it is often another one than without.",
        ),
    ] = 6379
    redis_db: Annotated[
        int,
        env(
            "REDIS_DB",
            kind=count(0),
            help=(
                "The number of the database on that server. All keys begin with `regista:{r0}:`, so it may be "
                "shared with other programs."
            ),
        ),
    ] = 0
    redis_user: Annotated[
        str,
        env(
            "REDIS_USER",
            kind=text("a name without blanks, or empty", "\\S*"),
            help=(
                "The ACL user on that server; empty is the default user. [Run on Redis](../howto/redis.md) says "
                "which rights it needs."
            ),
        ),
    ] = ""
    redis_password: Annotated[
        str,
        env(
            "REDIS_PASSWORD",
            kind=TOKEN,
            help="The password of that user. It is never shown, in a log or in an error.",
        ),
    ] = ""
    redis_tls: Annotated[
        bool,
        env(
            "REDIS_TLS",
            kind=SWITCH,
            help=(
                "Speak TLS with that server, and check its certificate against the authorities that this machine "
                "trusts."
            ),
        ),
    ] = False
    store_wait_s: Annotated[
        float,
        env(
            "REGISTA_STORE_WAIT_SECONDS",
            kind=seconds(zero=True),
            help=(
                "How long a Redis, or a PostgreSQL of the history, that cannot be reached when the orchestrator "
                "starts is waited for. It says so once, and opens its port when they are there; then, or with 0 "
                "at once, the start fails. Wrong credentials, a server that is too old or a missing right end it "
                "at once."
            ),
        ),
    ] = 60.0
    history_database_uri: Annotated[
        str,
        env(
            "HISTORY_DATABASE_URI",
            kind=text("empty, sqlite:PATH or postgresql://HOST/DATABASE", "(sqlite:.+|postgres(ql)?://.+)?"),
            help=(
                "Where events go: `sqlite:PATH`, or `postgresql://user:password@host/database` with the extra "
                "`regista[postgres]`. Empty means: in memory beside the memory storage, in a file next to the "
                "storage's own beside sqlite. Beside Redis there is none then: lists answer `history_disabled`, "
                "and the events of a job are read from the store. Orchestrators that share a Redis name one "
                "PostgreSQL. A history that fails is retried and never holds up a job. The password is never "
                "shown. See [Keep history](../howto/history.md)."
            ),
        ),
    ] = ""
    search_attributes: Annotated[
        dict[str, str],
        env(
            "REGISTA_SEARCH_ATTRIBUTES",
            kind=ATTRIBUTES,
            help=(
                "Search attributes that jobs of every blueprint may carry, beside those that a blueprint declares"
                ' itself: a JSON object of names and types, like `{"AssetId": "Keyword", "FileSizeBytes": '
                '"Int"}`. See [Find jobs](../howto/search.md).'
            ),
        ),
    ] = msgspec.field(default_factory=dict)
    history_max_age_s: Annotated[
        float,
        env(
            "REGISTA_HISTORY_MAX_AGE_SECONDS",
            kind=seconds(zero=True),
            help=(
                "Jobs that ended longer ago than this are forgotten, with their events. `0` keeps them for good. "
                "Jobs that have not ended are never forgotten."
            ),
        ),
    ] = 0.0
    history_max_jobs: Annotated[
        int,
        env(
            "REGISTA_HISTORY_MAX_JOBS",
            kind=count(0),
            help="How many jobs history keeps: the oldest that have ended go first. `0` keeps all of them.",
        ),
    ] = 0
    blueprints_dir: Annotated[
        str,
        env(
            "BLUEPRINTS_DIR",
            kind=text("a directory, or empty", ".*"),
            help=(
                "A directory whose Python files are loaded at the start, each blueprint in them registered. A "
                "file that cannot be loaded stops the start, and the error names the file and the line. Empty "
                "loads nothing."
            ),
        ),
    ] = ""
    tz: Annotated[
        str,
        env(
            "TZ",
            kind=ZONE,
            help=(
                "The time zone, by its IANA name, in which times are shown and calendar rules are read. Times are"
                " always *stored* in UTC."
            ),
        ),
    ] = "UTC"
    log_level: Annotated[
        str,
        env(
            "LOG_LEVEL",
            kind=LEVEL,
            help="The least important level that is logged: `DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`.",
        ),
    ] = "INFO"
    otlp_metrics_endpoint: Annotated[
        str,
        env(
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
            kind=URL,
            help=(
                "The whole URL that metrics are pushed to every 15 seconds, where it is another one than that of "
                "`OTEL_EXPORTER_OTLP_ENDPOINT`. They can be scraped at `/_public/metrics` in any case."
            ),
        ),
    ] = ""
    state_dir: Annotated[
        str,
        env(
            "REGISTA_DIR",
            kind=text("a directory", ".+"),
            help=(
                "The directory for what is kept beside the app: the tokens that are made at the first start on "
                "loopback (readable by their owner only), and the file of jobs of `regista serve` and `regista "
                "dev`. While these two serve on loopback, the file `url` there says where. Client and command "
                "line look for the token and the address there."
            ),
        ),
    ] = ".regista"
    schedules_config_path: Annotated[
        str,
        env(
            "SCHEDULES_CONFIG_PATH",
            kind=text("a file, or empty", ".*"),
            help=(
                "The file of jobs that are started at their time (`schedules.toml`). A mistake in it, or a "
                "blueprint in it that nobody has registered, stops the start and names the line. [How "
                "to](../howto/schedules.md)."
            ),
        ),
    ] = ""
    job_max_retries: Annotated[
        int,
        env(
            "JOB_MAX_RETRIES",
            kind=count(0),
            help=(
                "How often a task that failed with a transient error, or a handler that raised, is tried *again*:"
                " three retries are four runs. A task's own `RetryPolicy(max_attempts=…)` counts runs and wins. "
                "After the last one the job is quarantined."
            ),
        ),
    ] = 3
    handler_retry_first_s: Annotated[
        float,
        env(
            "REGISTA_HANDLER_RETRY_FIRST_SECONDS",
            kind=seconds(zero=True),
            help=(
                "The pause before a handler that raised runs again. It doubles with each further retry, up to a "
                "cap and with some jitter."
            ),
        ),
    ] = 1.0
    lost_budget: Annotated[
        int,
        env(
            "REGISTA_LOST_BUDGET",
            kind=count(0),
            help=(
                "How many attempts of one task may be lost (its worker vanished, or never took it) before the "
                "task counts as failed. Losses say nothing about the task itself, so they do not use up its "
                "retries."
            ),
        ),
    ] = 10
    worker_timeout_s: Annotated[
        float,
        env(
            "WORKER_TIMEOUT_SECONDS",
            kind=seconds(zero=False),
            help=(
                "The longest that one attempt of a task may run, in seconds, where its dispatch has no "
                "`attempt_timeout`: raise it for long tasks. It is no lease of a worker (that is "
                "`REGISTA_LEASE_SECONDS`). [What follows when it is over, and the other time "
                "limits](../howto/blueprints.md#time-limits)."
            ),
        ),
    ] = 300.0
    cancel_grace_s: Annotated[
        float,
        env(
            "REGISTA_CANCEL_GRACE_SECONDS",
            kind=seconds(zero=True),
            help=(
                "How long a cancelled job waits for its workers to confirm that they stopped. Then it is "
                "cancelled all the same, marked as unconfirmed."
            ),
        ),
    ] = 30.0
    blocking_handler_threads: Annotated[
        int,
        env(
            "REGISTA_BLOCKING_HANDLER_THREADS",
            kind=count(1),
            help=(
                "The number of handlers declared `blocking=True` that run at once, each in a thread of its own. "
                "More of them wait for a free thread."
            ),
        ),
    ] = 32
    executor_max_concurrent_jobs: Annotated[
        int,
        env(
            "EXECUTOR_MAX_CONCURRENT_JOBS",
            kind=count(1),
            help=(
                "How many jobs one orchestrator decides about at the same time. Jobs that wait for a worker, a "
                "person or a timer do not count."
            ),
        ),
    ] = 1000
    patience_s: Annotated[
        float,
        env(
            "REGISTA_PATIENCE_SECONDS",
            kind=seconds(zero=True),
            help=(
                "How long a result waits for the next handler, so that both go into one commit. A slower handler "
                "has its result committed alone, and goes on by itself."
            ),
        ),
    ] = 0.02
    lease_s: Annotated[
        float,
        env(
            "REGISTA_LEASE_SECONDS",
            kind=seconds(zero=False),
            help=(
                "How long a claimed job, and a worker in the same process, is believed alive without a sign of "
                "life. It bounds how long a crash goes unnoticed; after an outage of our own, nothing that began "
                "before it expires for one full lease."
            ),
        ),
    ] = 30.0
    poll_lease_s: Annotated[
        float,
        env(
            "REGISTA_POLL_LEASE_SECONDS",
            kind=seconds(zero=False),
            help=(
                "How long a worker that polls is believed alive without a poll or a heartbeat. Its tasks are then"
                " closed as lost, and done by another."
            ),
        ),
    ] = 45.0
    poll_timeout_s: Annotated[
        float,
        env(
            "WORKER_POLL_TIMEOUT_SECONDS",
            kind=seconds(zero=False),
            help=(
                "How long a poll of a worker is held open when there is no task; then it is answered with 204, "
                "and the worker polls again."
            ),
        ),
    ] = 30.0
    watcher_interval_s: Annotated[
        float,
        env(
            "WATCHER_INTERVAL_SECONDS",
            kind=seconds(zero=False),
            help=(
                "How often the Watcher looks for deadlines and leases that nobody acted upon. It is the safety "
                "net: an orchestrator that runs acts on its own deadlines when they fall due."
            ),
        ),
    ] = 20.0
    watcher_limit: Annotated[
        int,
        env(
            "WATCHER_LIMIT",
            kind=count(1),
            help="The most that the Watcher takes on in one round; what is left waits for the next one.",
        ),
    ] = 500
    s3_auto_cleanup: Annotated[
        bool,
        env(
            "S3_AUTO_CLEANUP",
            kind=SWITCH,
            help="Whether the files of a job are removed when it has ended. A quarantined job has not.",
        ),
    ] = True
    offload_bytes: Annotated[
        int,
        env(
            "REGISTA_OFFLOAD_BYTES",
            kind=count(0),
            help=(
                "A value of a job's record (input, data, result, the params and result of a task) that is larger "
                "lies in the payload store. 0 puts nothing more there."
            ),
        ),
    ] = 256 * 1024
    max_file_bytes: Annotated[
        int,
        env(
            "REGISTA_MAX_FILE_BYTES",
            kind=count(1),
            help=(
                "The largest file that the orchestrator itself takes, where the payload store cannot sign links; "
                "413 `file_too_large` beyond it."
            ),
        ),
    ] = 5 * 1024 * 1024 * 1024

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
