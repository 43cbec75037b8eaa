"""OrchestratorEngine: an orchestrator in this process, with its lifecycle and the operations for programs that embed it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .aio import BackgroundTasks, wait_until_available
from .backends import build_history, build_storage, told_apart
from .blueprint import StateMachineBlueprint, load_blueprints
from .clock import Clock, IdGenerator, StoreClock, SystemClock
from .composition import build_parts
from .config import Config
from .config.credentials import ConfiguredTokens, load_tokens
from .config.people import reread_files
from .engines.base import Submission
from .errors import IdempotencyConflict, JobNotFound, StorageFailed
from .history.base import HistoryStorage
from .history.query import Query
from .history.store_only import NoHistory
from .maintenance.audit import note
from .model import ClientConfig, Event, Job, JobSummary
from .observe.telemetry import started_line
from .schedules.scheduler import read_file, reread_file
from .sdk.tasks import Worker
from .services.approvals import PersonDecision
from .services.caller import program_caller
from .storage.base import StorageBackend

if TYPE_CHECKING:
    from aiohttp import web

    from .api.authenticator import Authenticator
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
        self.config = told_apart(self.config, self.storage)
        self.history = history or build_history(self.config.history_database_uri, self.storage)
        if not isinstance(self.history, NoHistory) and (keep := getattr(self.storage, "keep_outbox", None)):
            keep()
        self._workers: list[LocalWorker] = []
        self._clients = dict(clients or {})
        self._client_tokens = dict(client_tokens or {})
        self._authenticators: list[Authenticator] = []
        #: Those of `app`, which outlives a stop.
        self._app_authenticator: Authenticator | None = None
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
        parts = build_parts(
            self.config,
            self.storage,
            self.history,
            self.clock,
            ids or IdGenerator(self.clock),
            self._clients,
            self.create_background_job,
            self._is_running,
        )
        self.library = parts.blueprints
        self.telemetry = parts.telemetry
        self.filing = parts.payloads
        self.dispatcher = parts.dispatcher
        self.webhooks = parts.webhooks
        self.engine = parts.engine
        self.feed = parts.live_events
        self.relay = parts.progress_relay
        self.workers = parts.workers
        self.recorder = parts.recorder
        self.scheduler = parts.scheduler
        self.grace = parts.grace
        self.maintenance = parts.maintenance
        self.hints = parts.hints
        self.services = parts.services
        self._tokens = parts.approval_tokens
        self._clock_sync = parts.clock_sync

    def _is_running(self) -> bool:
        """Started, and neither stopping nor failed."""
        return self._started and not self._stopping and self._failure is None

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
            self._authenticators = [each for each in self._authenticators if each is self._app_authenticator]
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
            self._app_authenticator = self._authenticators[-1]

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
                authenticator=self._add_authenticator(host),
                services=self.services,
                telemetry=self.telemetry,
            )
        )

    def reload(self) -> bool:
        """Read `clients.toml`, `workers.toml`, `schedules.toml` and certificates again. What has a mistake stays as it was: False then."""
        config = self.config
        wrong = [each.mistaken for each in self._authenticators if not each.reload()]
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

    def _add_authenticator(self, host: str) -> "Authenticator":
        from .api.authenticator import Authenticator

        authenticator = Authenticator(lambda: self._load_tokens(host))
        self._authenticators.append(authenticator)
        return authenticator

    def _load_tokens(self, host: str) -> ConfiguredTokens:
        check_url = self.webhooks.registry.check_url
        tokens = load_tokens(self.config, host, self._clients, self._client_tokens, check_url)
        self.webhooks.registry.replace_clients(tokens.webhooks)
        # Handlers read the client of their job from this dictionary.
        self._clients.update({client.name: client for client in tokens.clients.values()})
        return tokens

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
