"""Builds the parts of an orchestrator from its settings and connects them.

Only this module and `backends.py` name concrete classes. Every part gets what it needs as an argument of its
constructor; nothing is assigned to a part afterwards. Functions that are called later, such as `run_watcher`, are how
an earlier part reaches a later one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from .backends import settings_of
from .blueprint.registry import BlueprintRegistry
from .clock import Clock, IdGenerator, StoreClock
from .config import Config
from .dispatch.dispatcher import Dispatcher
from .engines.approval_tokens import ApprovalTokens
from .engines.handler_runner import HandlerRunner
from .engines.live_events import LiveEventFeed
from .engines.native.engine import NativeEngine
from .engines.native.hints import HintRouter
from .engines.native.repository import JobRepository
from .engines.progress_relay import ProgressRelay
from .filing import Filing, fail_broken_task
from .history.base import HistoryStorage
from .history.recorder import LEAD_S, HistoryRecorder
from .history.store_only import NoHistory
from .maintenance.audit import AuditTrimmer
from .maintenance.chore import Chore
from .maintenance.clock_sync import ClockSync
from .maintenance.health_checker import HealthChecker, ProgressWriter, WorkerIndexCleaner
from .maintenance.loop import ExpiryGrace, MaintenanceLoop
from .maintenance.recovery import RecoveryChore
from .maintenance.reputation import build_reputation
from .maintenance.retention import retention_of
from .maintenance.watcher import Watcher
from .model import ClientConfig, Task
from .model.attributes import declared_types
from .observe.parts import counted_start
from .observe.sampler import StoreSampler
from .observe.telemetry import Telemetry
from .payloads.base import FetchFailure
from .schedules.scheduler import Scheduler, build_scheduler
from .services import (
    ApprovalService,
    AuditService,
    BlueprintService,
    EventService,
    FileService,
    JobDetailsReader,
    JobHistoryService,
    JobService,
    QueueService,
    ScheduleService,
    SearchService,
    Services,
    SystemService,
    WebhookService,
    WorkerAdminService,
)
from .storage.base import Hint, HintKind, StorageBackend
from .webhooks.sender import WebhookSender, build_sender
from .workers.service import WorkerService


@dataclass(frozen=True)
class Parts:
    """The parts of one orchestrator, in the order in which they were built."""

    blueprints: BlueprintRegistry
    telemetry: Telemetry
    payloads: Filing
    dispatcher: Dispatcher
    approval_tokens: ApprovalTokens
    webhooks: WebhookSender
    engine: NativeEngine
    live_events: LiveEventFeed
    progress_relay: ProgressRelay
    workers: WorkerService
    recorder: HistoryRecorder
    scheduler: Scheduler
    grace: ExpiryGrace
    clock_sync: ClockSync | None
    maintenance: MaintenanceLoop
    hints: HintRouter
    services: Services


def build_parts(
    config: Config,
    storage: StorageBackend,
    history: HistoryStorage,
    clock: Clock,
    ids: IdGenerator,
    clients: Mapping[str, ClientConfig],
    start_job: Callable[..., Awaitable[str]],
    is_running: Callable[[], bool],
) -> Parts:
    """Build and connect all parts. `clients` is read at each use; `start_job` starts the jobs of schedules."""
    blueprints = BlueprintRegistry(declared_types(config.search_attributes))
    telemetry = Telemetry(config, clock, connected_workers=lambda: dispatcher)
    payloads = Filing(config, storage, clock, telemetry.watch_payloads)
    observer = telemetry.observer

    def fail_task(task: Task, reason: FetchFailure) -> None:
        engine.run_soon(fail_broken_task(engine, task, reason), "broken-params")

    repository = JobRepository(
        storage, clock, payloads.records, observer if telemetry.counts else None, fail_task
    )
    dispatcher = Dispatcher(storage, clock, repository)
    approval_tokens = ApprovalTokens(storage, config.approval_secret.encode())
    runner = HandlerRunner(
        clock,
        clients,
        approval_tokens,
        attributes=declared_types(config.search_attributes),
        files=payloads.files,
        blocking_threads=config.blocking_handler_threads,
        observer=observer,
    )
    webhooks = build_sender(
        config,
        storage,
        approval_tokens.token,
        clock,
        ids.random,
        on_attempt=telemetry.webhook_attempt,
        on_room=lambda: maintenance.run_soon("webhooks"),
    )
    engine = NativeEngine(
        storage,
        repository,
        history,
        blueprints,
        runner,
        approval_tokens,
        dispatcher,
        clock,
        ids,
        settings_of(config),
        observer=observer,
        webhook_url_for=webhooks.registry.url_for,
    )
    live_events = LiveEventFeed(storage, history, clock)
    progress_relay = ProgressRelay(storage, config.instance_id)
    workers = WorkerService(
        storage,
        repository,
        engine,
        dispatcher,
        clock,
        config.instance_id,
        config.lease_s,
        progress_sinks=(live_events.progress, progress_relay.publish),
    )
    recorder = build_recorder(config, storage, history, clock)
    scheduler = build_scheduler(
        config,
        storage,
        clock,
        counted_start(telemetry.metrics, start_job),
        engine,
        lambda name: blueprints.newest_graph(name) is not None,
    )
    grace = ExpiryGrace(clock, config.lease_s)
    clock_sync = ClockSync(storage, clock) if isinstance(clock, StoreClock) else None
    maintenance = MaintenanceLoop(
        [
            *job_chores(config, storage, engine, workers, dispatcher, grace),
            *store_chores(config, storage, history, telemetry, workers, clock),
            scheduler,
            webhooks,
            *payloads.chores,
            *([] if clock_sync is None else [clock_sync]),
        ],
        clock,
        storage,
        grace,
        config.instance_id,
        ids.random,
        config.lease_s / 2,
        on_lag=telemetry.lagged,
    )
    payloads.join(maintenance)
    hints = HintRouter(
        config.instance_id,
        engine.hint_handlers,
        payloads.hint_handlers,
        hint_handlers(engine, dispatcher, workers, recorder, live_events, progress_relay, maintenance),
    )
    audit = AuditService(storage, clock, config.instance_id, config.audit_days)
    jobs = JobService(engine, storage, payloads, audit, clock, config)
    services = Services(
        audit=audit,
        jobs=jobs,
        job_details=JobDetailsReader(engine, storage, history, payloads),
        job_history=JobHistoryService(jobs, engine, clock),
        search=SearchService(engine, storage, blueprints, config.tz, payloads.at_a_glance),
        events=EventService(jobs, live_events, storage, history),
        approvals=ApprovalService(engine, jobs, audit),
        files=FileService(jobs, payloads, storage, clock),
        blueprints=BlueprintService(blueprints),
        schedules=ScheduleService(
            scheduler.registry,
            scheduler,
            blueprints,
            audit,
            lambda: maintenance.run_soon(scheduler.name),
        ),
        webhooks=WebhookService(storage, webhooks.registry, clock, audit),
        workers=WorkerAdminService(workers, audit),
        queues=QueueService(storage, workers),
        system=SystemService(is_running, storage, maintenance.statuses),
    )
    return Parts(
        blueprints=blueprints,
        telemetry=telemetry,
        payloads=payloads,
        dispatcher=dispatcher,
        approval_tokens=approval_tokens,
        webhooks=webhooks,
        engine=engine,
        live_events=live_events,
        progress_relay=progress_relay,
        workers=workers,
        recorder=recorder,
        scheduler=scheduler,
        grace=grace,
        clock_sync=clock_sync,
        maintenance=maintenance,
        hints=hints,
        services=services,
    )


def build_recorder(
    config: Config, storage: StorageBackend, history: HistoryStorage, clock: Clock
) -> HistoryRecorder:
    """The recorder; of several instances on one store, only the leader records."""

    async def lead() -> bool:
        return await storage.lead("history", config.instance_id, LEAD_S)

    return HistoryRecorder(storage, history, clock=clock, lead=lead if storage.shared else None)


def job_chores(
    config: Config,
    storage: StorageBackend,
    engine: NativeEngine,
    workers: WorkerService,
    dispatcher: Dispatcher,
    grace: ExpiryGrace,
) -> Sequence[Chore]:
    """What keeps jobs and workers going: deadlines, lost workers, progress, recovery of missed messages."""
    lease_s = max(config.lease_s, config.poll_lease_s)
    return [
        Watcher(storage, engine, grace, min(1.0, config.watcher_interval_s), config.watcher_limit),
        HealthChecker(storage, workers, grace, min(1.0, config.lease_s / 3), lease_s),
        WorkerIndexCleaner(storage, dispatcher, workers),
        ProgressWriter(workers),
        RecoveryChore(engine),
    ]


def store_chores(
    config: Config,
    storage: StorageBackend,
    history: HistoryStorage,
    telemetry: Telemetry,
    workers: WorkerService,
    clock: Clock,
) -> Sequence[Chore]:
    """What looks after the store and the history: samples, retention, reputation, audit records."""
    database = None if isinstance(history, NoHistory) else history
    return [
        StoreSampler(storage, database, telemetry.record_sample),
        *retention_of(config, history, storage),
        build_reputation(storage, history, workers, clock),
        AuditTrimmer(storage),
    ]


def hint_handlers(
    engine: NativeEngine,
    dispatcher: Dispatcher,
    workers: WorkerService,
    recorder: HistoryRecorder,
    live_events: LiveEventFeed,
    progress_relay: ProgressRelay,
    maintenance: MaintenanceLoop,
) -> Mapping[HintKind, Sequence[Callable[[Hint], None]]]:
    """What the parts outside the engine do when the store sends a hint."""

    def reload_worker(hint: Hint) -> None:
        if dispatcher.find(hint.id) is not None:
            engine.run_soon(workers.sync_with_record(hint.id), "worker-noted")

    def forward_progress(hint: Hint) -> None:
        update = progress_relay.decode(hint.id)
        if update is not None:
            live_events.progress(update.attempt_id, update.value, update.message)

    return {
        HintKind.OUTBOX: [lambda hint: recorder.wake(), lambda hint: live_events.wake()],
        HintKind.WORKER: [reload_worker],
        HintKind.PROGRESS: [forward_progress],
        HintKind.DEADLINE: [lambda hint: maintenance.run_soon("watcher")],
        # The chore that sends webhooks has the name of its collection.
        HintKind.RECORD: [lambda hint: maintenance.run_soon(hint.id)],
    }
