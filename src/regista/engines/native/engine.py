"""NativeEngine: runs jobs in this process, over a store."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from ...aio import BackgroundTasks
from ...blueprint.registry import BlueprintRegistry
from ...clock import Clock, IdGenerator
from ...dispatch.dispatcher import Dispatcher
from ...dispatch.peer_slots import SlotExchange
from ...errors import JobNotFound, OrchestratorStopped, RegistaError, StorageOutcomeUnknown
from ...history.base import HistoryStorage
from ...history.query import Field, Place, Query
from ...history.query.counts import JobCounts
from ...history.reader import count_jobs, find_jobs, read_events
from ...machine import signals
from ...machine.step import DecisionContext, Step
from ...machine.task_results import TaskStep
from ...model import Event, Job, JobSummary, QueueStatus, ResultVerdict, Task, TaskResult, parse_queue_key
from ...model.audit import AuditedAction
from ...model.explanation import Explanation, Score
from ...serialization import to_storable_dict, to_storable_text
from ...storage.base import Hint, HintKind, StorageBackend
from ..approval_tokens import ApprovalTokens
from ..base import Capability, EngineObserver, MonthlyQuota, NoObserver, Submission, WaitResult
from ..handler_runner import HandlerRunner
from .announcements import InstanceAnnouncer
from .contexts import ContextFactory
from .executor import JobExecutor
from .hints import HintHandler
from .messages import MessageDelivery
from .recovery import Recovery
from .repository import JobRepository
from .settings import ExecutorSettings
from .signals import Decide, DecideTask, JobSignals
from .submissions import Submissions, WebhookUrlFor
from .waiting import JobWaiter

log = logging.getLogger("regista.engine")

#: How long a stop waits for the store to take back the leases of this instance.
_RELEASE_TIMEOUT_S = 1.0


class NativeEngine:
    """Implements `Engine`, and for workers and chores `deliver`, `signal`, `signal_tasks`, `write` and `recheck`."""

    capabilities = frozenset(Capability)

    def __init__(
        self,
        storage: StorageBackend,
        repository: JobRepository,
        history: HistoryStorage,
        registry: BlueprintRegistry,
        runner: HandlerRunner,
        tokens: ApprovalTokens,
        dispatcher: Dispatcher,
        clock: Clock,
        ids: IdGenerator,
        settings: ExecutorSettings,
        *,
        observer: EngineObserver | None = None,
        webhook_url_for: WebhookUrlFor = lambda client, asked: asked,
    ) -> None:
        instance = settings.instance
        contexts = ContextFactory(registry, clock, ids.random, settings.machine)
        self._storage = storage
        self._repository = repository
        self._history = history
        self._dispatcher = dispatcher
        self._runner = runner
        self._tokens = tokens
        self._instance = instance
        self._background = BackgroundTasks(log, (StorageOutcomeUnknown, OrchestratorStopped))
        self._executor = JobExecutor(
            repository,
            storage,
            registry,
            runner,
            dispatcher,
            contexts,
            clock,
            ids,
            settings,
            observer if observer is not None else NoObserver(),
        )
        self._submissions = Submissions(
            storage, repository, registry, self._executor, contexts, clock, ids, instance, webhook_url_for
        )
        self._signals = JobSignals(repository, dispatcher, contexts, ids, instance)
        self._messages = MessageDelivery(repository, self._signals, self._background)
        self._waiter = JobWaiter(repository, clock)
        self._exchange = SlotExchange(storage, dispatcher.match_index.connected, dispatcher.peers, instance)
        announcer = InstanceAnnouncer(storage, instance, settings.lease_s, clock) if storage.shared else None
        self._recovery = Recovery(
            announcer,
            repository,
            registry,
            self._executor,
            dispatcher,
            self._exchange,
            self._waiter,
            self._messages,
            self._signals,
        )
        self._running = False

    # -- lifecycle -------------------------------------------------------------------------------

    @property
    def hint_handlers(self) -> Mapping[HintKind, Sequence[HintHandler]]:
        """What the engine does with the store's hints."""
        return {
            HintKind.READY: [lambda hint: self._executor.wake()],
            HintKind.TASK: [lambda hint: self._dispatcher.task_queued(parse_queue_key(hint.id))],
            HintKind.CHANGED: [self._waiter.job_changed],
            HintKind.MESSAGE: [lambda hint: self._messages.deliver_soon()],
            HintKind.CANCEL: [lambda hint: self._send_cancels(hint.id)],
            HintKind.SLOTS: [self._slots_changed],
        }

    async def start(self) -> None:
        """See `Engine.start`. The store's hints must arrive already."""
        if self._running:
            return
        self._running = True
        self._executor.start()
        self._dispatcher.start()
        if self._storage.shared:
            self._exchange.start()
        await self._recovery.announce()
        await self._release_leases()
        self._executor.wake()
        self._messages.deliver_soon()

    async def stop(self) -> None:
        """See `Engine.stop`. The store's hints must have ended."""
        if not self._running:
            return
        self._running = False
        self._waiter.fail_all(OrchestratorStopped())
        await self._executor.stop()
        self._runner.stop()
        with contextlib.suppress(StorageOutcomeUnknown, TimeoutError):  # then the leases lapse
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                await self._release_leases()
        await self._exchange.stop()
        await self._dispatcher.stop()
        await self._background.stop()

    async def _release_leases(self) -> None:
        """Lets other instances run what this instance claimed, now or before a crash."""
        returned = await self._storage.release_leases(self._instance)
        if returned:
            fields = {"action": "relinquished", "jobs": returned}
            log.info("%d jobs that were claimed here are queued again", returned, extra=fields)

    def _must_run(self) -> None:
        if not self._running:
            raise OrchestratorStopped("the orchestrator is not running; start it first")

    # -- clients ---------------------------------------------------------------------------------

    async def submit(
        self,
        submissions: Sequence[Submission],
        quota: MonthlyQuota | None = None,
        *,
        check_all: bool = False,
    ) -> list[Job | RegistaError]:
        """See `Engine.submit`."""
        self._must_run()
        return await self._submissions.submit(submissions, quota, check_all=check_all)

    async def get(self, job_id: str) -> Job:
        """See `Engine.get`."""
        (job,) = await self._repository.get([job_id])
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def tasks_of(self, job_id: str) -> list[Task]:
        """See `Engine.tasks_of`."""
        return await self._repository.tasks_of(job_id)

    async def wait(
        self, job_ids: Sequence[str], timeout_s: float, collect_s: float = 0.0, owner: str | None = None
    ) -> WaitResult:
        """See `Engine.wait`."""
        return await self._waiter.wait_any(job_ids, timeout_s, collect_s, owner)

    async def wait_one(self, job_id: str, timeout_s: float | None = None) -> Job:
        """The job once it has settled, or as it is after the timeout; JobNotFound."""
        return await self._waiter.wait_one(job_id, timeout_s)

    def fail_waiters(self, error: Exception) -> None:
        """Raises the error in all calls of `wait` and `wait_one`."""
        self._waiter.fail_all(error)

    async def explain(self, job: Job) -> Explanation:
        """See `Engine.explain`."""
        return await self._dispatcher.explain_job(job)

    async def dry_run(self, task: Task) -> list[Score]:
        """See `Engine.dry_run`."""
        return await self._dispatcher.dry_run(task)

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        """See `Engine.events`."""
        return await read_events(self._storage, self._history, job_id, after_seq, limit)

    async def find(
        self, query: Query, after: Place | None = None, limit: int = 100
    ) -> tuple[list[JobSummary], Place | None]:
        """See `Engine.find`."""
        return await find_jobs(self._storage, self._history, query, after, limit)

    async def count(self, query: Query, by: Field | None = None, limit: int = 100) -> JobCounts:
        """See `Engine.count`."""
        return await count_jobs(self._storage, self._history, query, by, limit)

    async def queue_status(self) -> list[QueueStatus]:
        """See `Engine.queue_status`."""
        return await self._storage.queue_status()

    async def cancel(self, job_id: str, reason: str = "", by: AuditedAction | None = None) -> Job:
        """See `Engine.cancel`."""
        reason = to_storable_text(reason, "reason")

        def decide(job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
            return signals.request_cancel(job, tasks, context, reason)

        return await self.signal(job_id, decide, by=by)

    async def approve(
        self,
        job_id: str,
        decision: str,
        comment: str = "",
        data: dict[str, Any] | None = None,
        visit: int | None = None,
        by: AuditedAction | None = None,
    ) -> Job:
        """See `Engine.approve`. With `visit` the decision answers the question of that visit only."""
        decision, comment = to_storable_text(decision, "decision"), to_storable_text(comment, "comment")
        data = to_storable_dict(data, "data")

        def decide(job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
            return signals.approve(job, decision, context, comment, data, visit)

        return await self.signal(job_id, decide, by=by)

    async def release(
        self, job_id: str, data: dict[str, Any] | None = None, by: AuditedAction | None = None
    ) -> Job:
        """See `Engine.release`."""
        data = to_storable_dict(data, "data")

        def decide(job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
            return signals.release(job, context, data)

        return await self.signal(job_id, decide, by=by)

    async def fail(self, job_id: str, reason: str = "", by: AuditedAction | None = None) -> Job:
        """See `Engine.fail`."""
        reason = to_storable_text(reason, "reason")

        def decide(job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
            return signals.fail_quarantined(job, context, reason, tasks)

        return await self.signal(job_id, decide, by=by)

    def approval_token(self, job: Job) -> str:
        """The token that answers the job's open question without a client token (FENCES 18)."""
        return self._tokens.token(job)

    # -- workers and chores ----------------------------------------------------------------------

    def deliver(self, result: TaskResult) -> "asyncio.Future[ResultVerdict]":
        """See `TaskEngine.deliver`."""
        return self._executor.deliver(result)

    async def signal(
        self,
        job_id: str,
        decide: Decide,
        consumes_message: str | None = None,
        by: AuditedAction | None = None,
    ) -> Job:
        """See `JobSignals.signal`."""
        self._must_run()
        return await self._signals.signal(job_id, decide, consumes_message, by)

    async def signal_tasks(self, task_ids: Sequence[str], decide: DecideTask) -> int:
        """See `JobSignals.signal_tasks`."""
        self._must_run()
        return await self._signals.signal_tasks(task_ids, decide)

    async def write(self, step: TaskStep) -> bool:
        """See `JobSignals.write`."""
        return await self._signals.write(step)

    async def recheck(self) -> int:
        """See `Recovery.recheck`."""
        return await self._recovery.recheck()

    def run_soon(self, work: Coroutine[Any, Any, None], action: str) -> None:
        """Runs the coroutine in the background. Its failure is logged; a heartbeat or a chore repeats the work."""
        self._background.start(work, action)

    # -- hints -----------------------------------------------------------------------------------

    def _slots_changed(self, hint: Hint) -> None:
        if hint.id != self._instance:
            self._exchange.peers_changed()

    def _send_cancels(self, worker_id: str) -> None:
        if self._dispatcher.find(worker_id) is not None:
            self._background.start(self._send_cancels_to(worker_id), "cancels")

    async def _send_cancels_to(self, worker_id: str) -> None:
        held = await self._repository.held_by(worker_id)
        wanted = [task.attempt_id for task in held if task.cancel_requested]
        if wanted:
            self._dispatcher.cancel(worker_id, wanted)
