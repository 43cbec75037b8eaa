"""OrchestratorEngine: the composition root. The only place that builds concrete parts."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .aio import BackgroundTasks, wait_until_available
from .backends import build_history, build_storage, settings_of, told_apart
from .blueprint import StateMachineBlueprint, load_blueprints
from .blueprint.registry import BlueprintRegistry
from .clock import Clock, IdGenerator, StoreClock, SystemClock
from .config import Config
from .config.client_webhooks import read_webhooks
from .config.people import (
    WorkerTokens,
    add_clients,
    read_clients,
    read_workers,
    reread_files,
    warn_of_nobody,
)
from .config.webhooks import ClientWebhook
from .dispatch.dispatcher import Dispatcher
from .engines.approval_tokens import ApprovalTokens
from .engines.base import Submission
from .engines.handler_runner import HandlerRunner
from .engines.live_events import LiveEventFeed
from .engines.native.engine import NativeEngine
from .engines.native.hints import HintRouter
from .engines.native.repository import JobRepository
from .engines.progress_relay import ProgressRelay
from .errors import IdempotencyConflict, JobNotFound, StorageFailed
from .filing import Filing, fail_broken_task
from .history.base import HistoryStorage
from .history.query import Query
from .history.recorder import LEAD_S, HistoryRecorder
from .history.store_only import NoHistory
from .maintenance.audit import AuditTrimmer, note
from .maintenance.chore import Chore
from .maintenance.clock_sync import ClockSync
from .maintenance.health_checker import HealthChecker, ProgressWriter, WorkerIndexCleaner
from .maintenance.loop import ExpiryGrace, MaintenanceLoop
from .maintenance.recovery import RecoveryChore
from .maintenance.reputation import build_reputation
from .maintenance.retention import retention_of
from .maintenance.watcher import Watcher
from .model import ClientConfig, Event, Job, JobSummary, Task
from .model.attributes import declared_types
from .observe.parts import counted_start
from .observe.sampler import StoreSampler
from .observe.telemetry import Telemetry, started_line
from .payloads.base import Broken
from .schedules.scheduler import build_scheduler, read_file, reread_file
from .sdk.tasks import Worker
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
from .services.approvals import PersonDecision
from .services.caller import program_caller
from .storage.base import HintKind, StorageBackend
from .tokens import CLIENT_FILE, WORKER_FILE, digest, token_for
from .upkeep.telling import build_sender
from .workers.service import WorkerService

if TYPE_CHECKING:
    from aiohttp import web

    from .api.authenticator import Authenticator, ConfiguredTokens
    from .sdk.local import LocalWorker
    from .server import HttpServer

log = logging.getLogger("regista")


class OrchestratorEngine:
    """Runs blueprints, in this process.

    ```python
    async with OrchestratorEngine("sqlite:.regista/jobs.db") as director:
        director.register_blueprint(blueprint)
        director.add_worker(worker)
        job = await director.run_job("greet", {"name": "Ada"})
    ```
    """

    def __init__(
        self,
        storage: StorageBackend | str | None = None,
        config: Config | None = None,
        *,
        history: HistoryStorage | None = None,
        clients: Mapping[str, ClientConfig] | None = None,
        client_tokens: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        ids: IdGenerator | None = None,
    ) -> None:
        self.config = config if config is not None else Config.from_env()
        self.clock: Clock = clock or SystemClock()
        name = storage if isinstance(storage, str) else self.config.storage
        self.storage = (
            build_storage(name, self.clock, has_history=bool(history or self.config.history_database_uri))
            if storage is None or isinstance(storage, str)
            else storage
        )
        if self.storage.shared:
            self.clock = StoreClock(self.clock)
        self._ids = ids or IdGenerator(self.clock)
        self.config = told_apart(self.config, self.storage)
        self.history = history or build_history(self.config.history_database_uri, self.storage)
        self.library = BlueprintRegistry(declared_types(self.config.search_attributes))
        self._workers: list[LocalWorker] = []
        self._clients = dict(clients or {})
        self._client_tokens = dict(client_tokens or {})
        self._doors: list[Authenticator] = []
        #: Those of `app`, which outlives a stop.
        self._doors_of_app: Authenticator | None = None
        self._app: web.Application | None = None
        self._site: HttpServer | None = None
        self._started = False
        self._unsubscribe: Callable[[], None] = lambda: None
        self._failure: StorageFailed | None = None
        self._failing: asyncio.Task[None] | None = None
        self._background = BackgroundTasks(log)
        self._stopping = False
        self._stop_lock = asyncio.Lock()
        self._stopped = asyncio.Event()
        self._build(self._clients)

    def _build(self, clients: Mapping[str, ClientConfig]) -> None:
        config, clock, ids = self.config, self.clock, self._ids
        settings = settings_of(config)
        self.telemetry = Telemetry(config, clock)
        self.filing = Filing(config, self.storage, clock, self.telemetry.watch_payloads)
        observer = self.telemetry.observer
        repository = JobRepository(
            self.storage,
            clock,
            self.filing.records,
            observer if self.telemetry.counts else None,
            self._fail_broken_task,
        )
        self.dispatcher = self.telemetry.crew = Dispatcher(self.storage, clock, repository)
        declared = declared_types(config.search_attributes)
        self._tokens = ApprovalTokens(self.storage, config.approval_secret.encode())
        runner = HandlerRunner(
            clock,
            clients,
            self._tokens,
            attributes=declared,
            files=self.filing.files,
            blocking_threads=config.blocking_handler_threads,
            observer=observer,
        )
        self.webhooks = build_sender(
            config,
            self.storage,
            self._tokens.token,
            clock,
            ids.random,
            self.telemetry.webhook_attempt,
        )
        self.engine = NativeEngine(
            self.storage,
            repository,
            self.history,
            self.library,
            runner,
            self._tokens,
            self.dispatcher,
            clock,
            ids,
            settings,
            observer=observer,
            webhook_url_for=self.webhooks.book.url_for,
        )
        self.workers = WorkerService(
            self.storage, repository, self.engine, self.dispatcher, clock, config.instance_id, config.lease_s
        )
        self.recorder = HistoryRecorder(
            self.storage, self.history, clock=clock, lead=self._records if self.storage.shared else None
        )
        self.feed = LiveEventFeed(self.storage, self.history, clock)
        self.relay = ProgressRelay(self.storage, config.instance_id)
        self.workers.on_progress = self._progressed
        start = counted_start(self.telemetry.metrics, self.create_background_job)
        self.scheduler = build_scheduler(
            config,
            self.storage,
            clock,
            start,
            self.engine,
            lambda name: self.library.newest_graph(name) is not None,
        )
        self.grace = ExpiryGrace(clock, config.lease_s)
        self._clock_sync = ClockSync(self.storage, clock) if isinstance(clock, StoreClock) else None
        self.maintenance = MaintenanceLoop(
            self._chores(),
            clock,
            self.storage,
            self.grace,
            config.instance_id,
            ids.random,
            config.lease_s / 2,
        )

        self.maintenance.on_lag = self.telemetry.lagged
        self.webhooks.on_room = lambda: self.maintenance.run_soon(self.webhooks.name)
        self.filing.join(self.maintenance)
        self.hints = HintRouter(
            config.instance_id,
            self.engine.hint_handlers,
            self.filing.hint_handlers,
            {
                HintKind.OUTBOX: [lambda hint: self._entries_flushed()],
                HintKind.WORKER: [lambda hint: self._worker_noted(hint.id)],
                HintKind.PROGRESS: [lambda hint: self._progress_elsewhere(hint.id)],
                HintKind.DEADLINE: [lambda hint: self.maintenance.run_soon("watcher")],
                # The sender's chore has the name of its collection.
                HintKind.RECORD: [lambda hint: self.maintenance.run_soon(hint.id)],
            },
        )
        self.services = self._build_services()

    def _build_services(self) -> Services:
        config, clock, engine, history = self.config, self.clock, self.engine, self.history
        storage = self.storage
        audit = AuditService(self.storage, clock, config.instance_id, config.audit_days)
        jobs = JobService(engine, storage, self.filing, audit, clock, config)
        return Services(
            audit=audit,
            jobs=jobs,
            job_details=JobDetailsReader(engine, storage, history, self.filing),
            job_history=JobHistoryService(jobs, storage, history, clock),
            search=SearchService(storage, history, self.library, config.tz, self.filing.at_a_glance),
            events=EventService(jobs, self.feed, storage, history),
            approvals=ApprovalService(engine, jobs, audit),
            files=FileService(jobs, self.filing, storage, clock),
            blueprints=BlueprintService(self.library),
            schedules=ScheduleService(
                self.scheduler.registry,
                self.scheduler,
                self.library,
                audit,
                lambda: self.maintenance.run_soon(self.scheduler.name),
            ),
            webhooks=WebhookService(self.storage, self.webhooks.book, clock, audit),
            workers=WorkerAdminService(self.workers, audit),
            queues=QueueService(self.storage, self.workers),
            system=SystemService(self._is_running, storage, self.maintenance.statuses),
        )

    def _is_running(self) -> bool:
        """Started, and neither stopping nor failed."""
        return self._started and not self._stopping and self._failure is None

    def _chores(self) -> list[Chore]:
        """What is done again and again, in this order."""
        config = self.config
        kept = None if isinstance(self.history, NoHistory) else self.history
        return [
            Watcher(
                self.storage,
                self.engine,
                self.grace,
                min(1.0, config.watcher_interval_s),
                config.watcher_limit,
            ),
            HealthChecker(
                self.storage,
                self.workers,
                self.grace,
                min(1.0, config.lease_s / 3),
                max(config.lease_s, config.poll_lease_s),
            ),
            WorkerIndexCleaner(self.storage, self.dispatcher, self.workers),
            ProgressWriter(self.workers),
            StoreSampler(
                self.storage,
                kept,
                self.telemetry.record_sample,
            ),
            RecoveryChore(self.engine),
            *retention_of(config, self.history, self.storage),
            self.scheduler,
            build_reputation(self.storage, self.history, self.workers, self.clock),
            self.webhooks,
            AuditTrimmer(self.storage),
            *self.filing.chores,
            *([] if self._clock_sync is None else [self._clock_sync]),
        ]

    def _progressed(self, attempt_id: str, value: float | None, message: str) -> None:
        self.feed.progress(attempt_id, value, message)
        self.relay.publish(attempt_id, value, message)

    def _progress_elsewhere(self, text: str) -> None:
        word = self.relay.decode(text)
        if word is not None:
            self.feed.progress(word.attempt_id, word.value, word.message)

    def _fail_broken_task(self, task: Task, why: Broken) -> None:
        self.engine.run_soon(fail_broken_task(self.engine, task, why), "broken-params")

    def _worker_noted(self, worker_id: str) -> None:
        if self.dispatcher.find(worker_id) is not None:
            self.engine.run_soon(self.workers.sync_with_record(worker_id), "worker-noted")

    async def _records(self) -> bool:
        return await self.storage.lead("history", self.config.instance_id, LEAD_S)

    def _entries_flushed(self) -> None:
        self.recorder.wake()
        self.feed.wake()

    # -- what is played --------------------------------------------------------------------------

    def register_blueprint(self, blueprint: StateMachineBlueprint) -> None:
        """Validate a blueprint and make it known; a later one of the same name becomes the newest."""
        self.library.add(blueprint)
        self.telemetry.expect(blueprint.name)

    def add_worker(self, worker: Worker) -> "LocalWorker":
        """Perform this worker's tasks in this process, from `start` on; at once if that has been."""
        from .sdk.local import LocalWorker

        local = LocalWorker(worker, self.workers, self.clock, files=self.filing.service)
        if any(known.id == local.id for known in self._workers):
            raise ValueError(f"a worker named {worker.name!r} is already there; give this one another name")
        self._workers.append(local)
        if self._started:
            self._background.start(local.start(), f"start of worker {local.id}")
        return local

    # -- life ------------------------------------------------------------------------------------

    async def setup(self) -> None:
        """Load BLUEPRINTS_DIR, then schedules.toml. A file that fails stops the start and says which line."""
        if self.config.blueprints_dir:
            for blueprint in load_blueprints(self.config.blueprints_dir):
                self.register_blueprint(blueprint)
        read_file(self.scheduler, self.config, self._blueprint_names())

    async def start(self) -> None:
        """Recover what is stored and go on with it. A start that fails leaves nothing open."""
        if self._started:
            return
        self._stopped.clear()
        self._failure = None
        self.telemetry.start()
        try:
            await self._start()
        except BaseException:
            await self._stop(0.0)
            raise
        self._started = True
        self.telemetry.set_facts(started=True)
        log.info(
            "started: %s", started_line(self.config, type(self.history).__name__), extra={"action": "started"}
        )

    async def _start(self) -> None:
        # Each part needs the ones before it.
        await self.setup()
        await wait_until_available(self.storage.start, self.config.store_wait_s)
        self._failing = asyncio.get_running_loop().create_task(self._stop_on_failure(), name="storage-failed")
        await self.filing.start()
        if self._clock_sync is not None:
            await self._clock_sync.run_once(self.clock.now())  # before anything is stamped
        await wait_until_available(self.history.start, self.config.store_wait_s)
        if not isinstance(self.history, NoHistory):
            await self.recorder.start()
        self.grace.restart()
        await self._tokens.start()
        self._unsubscribe = self.storage.subscribe(self.hints.dispatch)
        await self.engine.start()
        self.feed.start()
        for worker in self._workers:
            await worker.start()
        await self.maintenance.start()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Drain and close. Tasks get the grace to finish; what does not is done again after the next start.

        A second call waits for the first one. When a stop was cancelled, the next call completes it.
        """
        async with self._stop_lock:
            if not self._started:
                return
            self._stopping = True
            self.telemetry.set_facts(stopping=True)
            if self._site is not None:
                # The port is closed first, so that clients and workers go to another instance.
                await self._site.stop()
                self._site = None
            self._doors = [doors for doors in self._doors if doors is self._doors_of_app]
            await self._stop(grace_s)
            self._started = self._stopping = False

    async def _stop(self, grace_s: float) -> None:
        # In the opposite order: each part is closed after the parts that write to it. Each of these can be called again.
        await self._background.stop()
        await self.services.audit.stop()
        await self.maintenance.stop()
        await self.webhooks.stop(min(grace_s, 2.0))
        for worker in self._workers:
            await worker.stop(grace_s)
        await self.feed.stop()
        self.relay.stop()
        self._unsubscribe()
        await self.engine.stop()
        await self.filing.stop()
        await self.recorder.stop()
        await self.history.stop()
        try:
            await self.storage.stop()
        except StorageFailed as failure:
            self._failure = self._failure or failure
            log.error("the store had failed: %s", failure, extra={"action": "storage_failed"})
        failing, self._failing = self._failing, None
        if failing is not None and failing is not asyncio.current_task():
            failing.cancel()
        await self.telemetry.stop()
        self._stopped.set()

    async def __aenter__(self) -> "OrchestratorEngine":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _stop_on_failure(self) -> None:
        """A failed flush is final: say so, and stop by ourselves (FENCES 2)."""
        failure = await self.storage.failed()
        self._failure = failure
        self.telemetry.set_facts(failed=True)
        log.critical("storage failed, stopping: %s", failure, extra={"action": "storage_failed"})
        self.engine.fail_waiters(failure)
        await self.stop(0.0)

    async def wait_stopped(self) -> None:
        """Return when the orchestrator has stopped; raise what stopped it, if something did."""
        await self._stopped.wait()
        if self._failure is not None:
            raise self._failure

    # -- the HTTP edge ---------------------------------------------------------------------------

    @property
    def app(self) -> "web.Application":
        """The API as an aiohttp application of your own: running it starts this orchestrator, too.

        Mount it with `web.run_app(director.app)`, or under a prefix with `add_subapp`. It is built at the
        first use; register blueprints before that.
        """
        if self._app is None:
            app = self._build_app(self.config.api_host)
            self._doors_of_app = self._doors[-1]

            async def alive(_: "web.Application") -> AsyncIterator[None]:
                await self.start()
                yield
                await self.stop(self.config.stop_grace_s)

            app.cleanup_ctx.append(alive)
            self._app = app
        return self._app

    def _build_app(self, host: str) -> "web.Application":
        from .api.app import create_app
        from .api.stage import Stage

        return create_app(
            Stage(
                config=self.config,
                clock=self.clock,
                engine=self.engine,
                workers=self.workers,
                dispatcher=self.dispatcher,
                library=self.library,
                storage=self.storage,
                filing=self.filing,
                feed=self.feed,
                authenticator=self._open_doors(host),
                services=self.services,
                telemetry=self.telemetry,
            )
        )

    def reload(self) -> bool:
        """Read `clients.toml`, `workers.toml`, `schedules.toml` and certificates again. What has a mistake stays as it was: False then."""
        config = self.config
        wrong = [doors.mistaken for doors in self._doors if not doors.reload()]
        if not reread_file(self.scheduler, config, self._blueprint_names()):
            wrong.append(config.schedules_config_path)
        if self._site is not None and not self._site.reload():
            wrong.append(config.tls_cert_path)
        if self._started:
            told, files = ("refused", wrong) if wrong else ("done", reread_files(config))
            named = ", ".join(dict.fromkeys(files)) or "nothing"
            self.engine.run_soon(
                note(self.storage, self.clock, config, "config.reload", named, outcome=told), "audit"
            )
        return not wrong

    def _blueprint_names(self) -> list[str]:
        return [blueprint.name for blueprint in self.library.blueprints()]

    def _open_doors(self, host: str) -> "Authenticator":
        from .api.authenticator import Authenticator

        doors = Authenticator(lambda: self._guests(host))
        self._doors.append(doors)
        return doors

    def _guests(self, host: str) -> "ConfiguredTokens":
        """Who may come in: whom the program names, whom the files name, and whom the settings name."""
        from .api.authenticator import ConfiguredTokens

        config = self.config
        told: dict[str, ClientWebhook] = {}
        clients = {
            digest(token): self._clients.get(name) or ClientConfig(name=name)
            for token, name in self._client_tokens.items()
        }
        if config.clients_config_path:
            add_clients(clients, read_clients(config.clients_config_path), config.clients_config_path)
            told = read_webhooks(config.clients_config_path, self.webhooks.book.check_url)
        workers = WorkerTokens({})
        if config.workers_config_path:
            workers = read_workers(config.workers_config_path)
        if config.client_token or not (clients or config.clients_config_path):
            # With none named there is one, and it is everybody's operator.
            token = self._token("CLIENT_TOKEN", config.client_token, host, CLIENT_FILE)
            add_clients(clients, {digest(token): ClientConfig(name="default", operator=True)}, "CLIENT_TOKEN")
        warn_of_nobody(config, clients)
        worker_token = config.worker_token
        if not worker_token and not config.workers_config_path and config.worker_auth_mode != "mtls-only":
            worker_token = self._token("WORKER_TOKEN", "", host, WORKER_FILE)
        self.webhooks.book.replace_clients(told)
        # Handlers see who asked by the same records; the runner holds this very dictionary.
        self._clients.update({client.name: client for client in clients.values()})
        return ConfiguredTokens(clients, worker_token, workers)

    def _token(self, setting: str, given: str, host: str, name: str) -> str:
        return token_for(setting, given, host, self.config.state_dir, name)

    async def serve(self, host: str | None = None, port: int | None = None) -> "HttpServer":
        """Start, and answer HTTP; returns when requests are taken. Port 0 is any free one."""
        from .server import HttpServer

        host = host or self.config.api_host
        # Missing credentials and wrong certificates are refused before anything is opened.
        app = self._build_app(host)
        site = HttpServer(app, host, self.config.api_port if port is None else port)
        await self.start()
        try:
            await site.start()
        except BaseException:
            await self.stop(0.0)
            raise
        self._site = site
        return site

    def run(self, host: str | None = None, port: int | None = None) -> None:
        """Serve until SIGTERM or SIGINT, then drain and return. Blocks."""
        from .server import serve_until_signal

        serve_until_signal(self, host, port)

    # -- clients ---------------------------------------------------------------------------------

    async def submit(
        self,
        blueprint: str,
        input: dict[str, Any] | None = None,
        *,
        client: str = "",
        idempotency_key: str | None = None,
        priority: float = 0.0,
        dispatch_timeout_s: float | None = None,
        result_timeout_s: float | None = None,
        webhook_url: str | None = None,
        search_attributes: dict[str, Any] | None = None,
        tracing_context: dict[str, str] | None = None,
    ) -> Job:
        """Accept a job; durable when this returns. Its first handler may have run by then.

        The same `idempotency_key` returns the same job, with another body it is IdempotencyConflict. The
        priority and the timeouts are what the job's tasks get when their dispatch names none.
        """
        submission = Submission(
            blueprint=blueprint,
            input=input or {},
            client=client,
            idempotency_key=idempotency_key,
            priority=priority,
            dispatch_timeout_s=dispatch_timeout_s,
            result_timeout_s=result_timeout_s,
            webhook_url=webhook_url,
            search_attributes=search_attributes or {},
            tracing_context=tracing_context or {},
        )
        with self.telemetry.submitting(blueprint) or nullcontext():
            return await self.services.jobs.submit_one(program_caller(client), submission)

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Job | IdempotencyConflict]:
        """Accept several jobs with one flush; each is answered in its own place."""
        answers = await self.services.jobs.submit(program_caller(), submissions, check_all=True)
        return [answer for answer in answers if isinstance(answer, Job | IdempotencyConflict)]

    async def create_background_job(
        self,
        blueprint_name: str,
        initial_data: dict[str, Any] | None = None,
        source: str = "internal",
        **options: Any,
    ) -> str:
        """Start a job from inside, as the source documents name it (with the options of `submit`); returns its id."""
        job = await self.submit(blueprint_name, initial_data, client=source, **options)
        return job.id

    async def run_job(
        self,
        blueprint: str,
        input: dict[str, Any] | None = None,
        timeout_s: float | None = None,
        **options: Any,
    ) -> Job:
        """Submit (with the options of `submit`) and wait until the job has settled."""
        job = await self.submit(blueprint, input, **options)
        return await self.wait(job.id, timeout_s)

    async def wait(self, job_id: str, timeout_s: float | None = None) -> Job:
        """The job once it has settled, or as it is when the time is up."""
        return await self.filing.whole(await self.engine.wait_one(job_id, timeout_s))

    async def get(self, job_id: str) -> Job:
        """The job, or JobNotFound."""
        return await self.filing.whole(await self.engine.get(job_id))

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        """What happened to a job: history, and what is still on its way there."""
        return await self.services.job_history.events(program_caller(), job_id, after_seq, limit)

    async def jobs(
        self,
        *,
        status: str | None = None,
        blueprint: str | None = None,
        client: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[JobSummary]:
        """Find jobs, newest first, as history knows them (a moment behind).

        For the next page hand in the last `job_id` of this one as `before`.
        """
        place = None
        if before is not None:
            found = await self.history.search(Query().restricted(job_id=before), limit=1)
            if not found:
                raise JobNotFound(before)
            place = (found[0].created_at, before)
        query = Query().restricted(status=status, blueprint=blueprint, client=client)
        return await self.history.search(query, place, limit)

    async def cancel(self, job_id: str, reason: str = "") -> Job:
        """Ask for a stop."""
        return await self.services.jobs.cancel(program_caller(), job_id, reason)

    async def approve(
        self, job_id: str, decision: str, comment: str = "", data: dict[str, Any] | None = None
    ) -> Job:
        """Pass on a person's decision."""
        decided = PersonDecision(decision, comment, data or {})
        return await self.services.approvals.approve(program_caller(), job_id, decided)

    async def release(self, job_id: str, data: dict[str, Any] | None = None) -> Job:
        """Let a quarantined job try again, with `data` merged into its `state_history` first."""
        return await self.services.jobs.release(program_caller(), job_id, data)

    async def fail(self, job_id: str, reason: str = "") -> Job:
        """Give a quarantined job up."""
        return await self.services.jobs.fail(program_caller(), job_id, reason)
