"""Telemetry: everything of this room that one orchestrator has, built and handed out in one piece."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from .. import __version__, trace_context
from ..clock import Clock
from ..config import Config
from ..config.telemetry import metrics_endpoint, traces_endpoint
from ..errors import ConfigError
from ..model import Job, JobStatus, Worker
from ..payloads.base import PayloadStore
from .commit_metrics import CommitMetrics
from .engine_observer import EngineTelemetry
from .meters import Meters
from .metrics import Metrics
from .parts import watched_payloads
from .spans import SpanObserver, SpanRecord
from .system_state import Facts, SystemHealth, SystemState, health_of

if TYPE_CHECKING:
    from ..webhooks.base import DeliveryResult
    from .otlp_metrics import MetricsPusher, OtlpRecords
    from .tracing import HandlerSpan, Tracing

#: How a job can settle.
SETTLED = tuple(status.value for status in JobStatus if status.settled)
#: The exposition format of the page.
PAGE_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: What `regista[telemetry]` brings along, by what we import of it.
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


@cache
def installed() -> bool:
    """The extra is there."""
    try:
        return all(find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:  # a part of the dotted name is missing
        return False


class WorkerLike(Protocol):
    """A worker that is connected here."""

    @property
    def worker(self) -> Worker: ...
    @property
    def attempts(self) -> Mapping[str, str]: ...


class ConnectedWorkerIndex(Protocol):
    """The connected workers of this instance; `Dispatcher` implements it."""

    def find(self, worker_id: str | None) -> WorkerLike | None: ...
    def connected_workers(self) -> Sequence[WorkerLike]: ...


class Telemetry:
    """Counts and traces what this orchestrator does, and knows how it is.

    Metrics and the system state need no extra; spans and pushed metrics need `regista[telemetry]`. With OTEL_SDK_DISABLED
    nothing is counted.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        present: bool | None = None,
        connected_workers: Callable[[], ConnectedWorkerIndex | None] = lambda: None,
    ) -> None:
        """`connected_workers` gives the index of connected workers once there is one."""
        self.installed = installed() if present is None else present
        self._config = config
        self._clock = clock
        #: Something is counted.
        self.counts = not config.otel_disabled
        self.metrics = Metrics()
        self._records: OtlpRecords | None = None
        self._render: Callable[[Meters], bytes] | None = None
        self._pusher: MetricsPusher | None = None
        self._tracing: Tracing | None = None
        self._facts = Facts()
        self._away_since: float | None = None
        #: What user code traces goes the same way; for a process that is ours alone.
        self.everywhere = False
        self._connected_workers = connected_workers
        #: Spans are sent, from `start` to `stop`.
        self.traces = bool(traces_endpoint(config))
        if self.traces and not self.installed:
            expected = "the telemetry extra (pip install 'regista[telemetry]')"
            raise ConfigError("OTEL_EXPORTER_OTLP_ENDPOINT", expected, traces_endpoint(config))

        #: What the engine reports to; only used where something is counted.
        self.observer = EngineTelemetry(
            self.metrics,
            CommitMetrics(self.metrics, self._seated),
            SpanObserver(self._emit) if self.traces else None,
            self._handler,
            clock,
        )

    # -- listening -------------------------------------------------------------------------------

    def watch_payloads(self, payloads: PayloadStore) -> PayloadStore:
        """The same for the payload store."""
        return watched_payloads(payloads, self.metrics, self._clock) if self.counts else payloads

    def _seated(self, worker_id: str | None) -> Worker | None:
        index = self._connected_workers()
        connected = None if index is None else index.find(worker_id)
        return None if connected is None else connected.worker

    def _emit(self, record: SpanRecord) -> None:
        if self._tracing is not None:
            self._tracing.emit(record)

    def _handler(self, job: Job) -> "HandlerSpan | None":
        return None if self._tracing is None else self._tracing.handler(job)

    def submitting(self, blueprint: str) -> "trace_context.ActiveSpan | None":
        """The span of a submission from this very program, where it has none open; None when nobody traces."""
        if self._tracing is None or trace_context.current_context():
            return None
        return trace_context.start_span(f"submit {blueprint}", "producer", blueprint=blueprint)

    def expect(self, blueprint: str) -> None:
        """Jobs of this blueprint may come. Their counters begin at 0: the first of anything is a change, too."""
        self.metrics.jobs.add((blueprint,), 0)
        self.metrics.jobs_failed.add((blueprint,), 0)
        for status in SETTLED:
            self.metrics.jobs_ended.add((blueprint, status), 0)

    def lagged(self, late_s: float) -> None:
        """The loop came so much later than it should."""
        self.metrics.lag.observe(late_s)
        self._note(loop_lag_s=late_s)

    def webhook_attempt(self, result: "DeliveryResult") -> None:
        """Count an attempt to deliver a webhook by its outcome."""
        outcome = "heard" if result.ok else "refused" if result.final else "not_heard"
        self.metrics.webhooks.add((outcome,))

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to send, where somebody wants to be sent something."""
        self._note(stopping=False, failed=False)
        if self.traces and self._tracing is None:
            from .tracing import Tracing

            config = self._config
            self._tracing = Tracing(traces_endpoint(config), config.otel_service_name, config.instance_id)
            self._tracing.start(everywhere=self.everywhere)
        endpoint = metrics_endpoint(self._config, self._config.otlp_metrics_endpoint)
        if endpoint and self.counts and self.installed:
            from .otlp_metrics import MetricsPusher

            self._pusher = MetricsPusher(lambda: self._collected().collect(), endpoint)
            self._pusher.start()

    async def stop(self) -> None:
        """Send the last of it. Twice is fine, and so is before `start`."""
        self._note(started=False)
        pusher, self._pusher = self._pusher, None
        if pusher is not None:
            await pusher.stop()
        tracing, self._tracing = self._tracing, None
        if tracing is not None:
            await tracing.stop()

    # -- how it is -------------------------------------------------------------------------------

    def set_facts(self, **facts: Any) -> None:
        """Facts of the orchestrator's life: started, stopping, failed."""
        self._note(**facts)

    def record_sample(
        self,
        *,
        store_up: bool,
        workers: int = 0,
        queues: Mapping[str, tuple[int, float]] | None = None,
        history_up: bool | None = None,
        history_entries: int = 0,
        history_lag_s: float = 0.0,
    ) -> None:
        """What a look into the store found. Queues: how many wait, and for how many seconds the first has."""
        self.metrics.store_up.set(1 if store_up else 0)
        if not store_up:
            if self._away_since is None:
                self._away_since = self._clock.elapsed()
            return
        self._away_since = None
        queues = queues or {}
        self.metrics.workers.set(workers)
        self.metrics.queue_length.fill({(name,): waiting for name, (waiting, _) in queues.items()})
        self.metrics.oldest.fill({(name,): age_s for name, (_, age_s) in queues.items()})
        if history_up is not None:
            self.metrics.history_up.set(1 if history_up else 0)
            self.metrics.history_entries.set(history_entries)
            self.metrics.history_lag.set(history_lag_s)
        self._note(
            workers=workers,
            history_up=history_up,
            history_lag_s=history_lag_s,
            waiting=sum(waiting for waiting, _ in queues.values()),
            oldest_s=max((age_s for _, age_s in queues.values()), default=0.0),
        )

    @property
    def health(self) -> SystemHealth:
        """How the orchestrator is, now."""
        away_s = None if self._away_since is None else self._clock.elapsed() - self._away_since
        return health_of(replace(self._facts, store_away_s=away_s, running=self._running()))

    def _running(self) -> int:
        index = self._connected_workers()
        return 0 if index is None else sum(len(each.attempts) for each in index.connected_workers())

    def _note(self, **facts: Any) -> None:
        self._facts = replace(self._facts, **facts)

    # -- showing ---------------------------------------------------------------------------------

    async def prometheus_page(self) -> bytes:
        """Everything that was counted, as Prometheus reads it. Reads no storage."""
        if self._render is None:
            # The library takes a moment to load, at the first scrape only.
            module = await asyncio.to_thread(import_module, ".prometheus", __package__)
            self._render = module.prometheus_page
        index = self._connected_workers()
        self.metrics.connected.set(0 if index is None else len(index.connected_workers()))
        self.metrics.busy.set(self._running())
        state = self.health.state
        self.metrics.state.fill({(each.value,): float(each is state) for each in SystemState})
        self._set_info()
        return self._render(self.metrics.all)

    def _set_info(self) -> None:
        config = self._config
        labels = (__version__, config.instance_id, config.storage.partition(":")[0])
        self.metrics.info.set(1, labels)

    def _collected(self) -> "OtlpRecords":
        if self._records is None:
            from .otlp_metrics import OtlpRecords

            config = self._config
            named = {
                "service.name": config.otel_service_name,
                "service.instance.id": config.instance_id,
                "service.version": __version__,
            }
            self._records = OtlpRecords(self.metrics.all, named)
            self._set_info()
        return self._records


def started_line(config: Config, history: str) -> str:
    """What an operator wants to know first: which store, which history, and who this is. Without passwords."""
    kind = history.removesuffix("History").lower()
    where = config.history_database_uri or {"no": "none", "memory": "in memory"}.get(kind, "beside the store")
    return f"store {_shown(config.storage)}, history {_shown(where)}, instance {config.instance_id}"


def _shown(uri: str) -> str:
    return re.sub(r"://[^@/]*@", "://***@", uri)
