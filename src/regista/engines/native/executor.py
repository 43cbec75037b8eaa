"""JobExecutor: runs jobs in batches. Many decisions, one commit.

Submissions, task results and jobs claimed from the ready queue arrive as work items. A turn takes a batch of them,
runs the handlers that are due, and stores everything with one commit. Callers are answered after that commit is flushed.
"""

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from ...blueprint.decisions import Decision, HandlerFailed
from ...blueprint.registry import BlueprintRegistry
from ...clock import Clock, IdGenerator
from ...dispatch.dispatcher import Dispatcher
from ...errors import (
    NotSerializable,
    OrchestratorStopped,
    StorageFailed,
    StorageOutcomeUnknown,
    StorageUnavailable,
)
from ...machine import signals, transitions
from ...machine.step import DecisionContext
from ...machine.task_results import TaskStep, apply_result, is_held, with_siblings
from ...model import (
    HELD_STATES,
    AwaitBranches,
    Change,
    CommitOutcome,
    CommitStatus,
    Job,
    JobStatus,
    Quota,
    ResultVerdict,
    Task,
    TaskFailure,
    TaskResult,
    task_id_of_attempt,
)
from ...storage.base import StorageBackend
from ..base import EngineObserver
from ..handler_runner import HandlerOutcome, HandlerRunner
from .contexts import ContextFactory
from .offers import TaskOffers
from .repository import JobRepository
from .settings import ExecutorSettings
from .suspended import SuspendedHandlers
from .work_item import PendingChange, WorkItem, merge_by_job

log = logging.getLogger("regista.engine")

MAX_ITEMS_PER_TURN = 128
#: Of them, room for jobs of the ready queue while new submissions arrive.
CLAIMED_ITEMS_PER_TURN = 32
#: Handlers run for so long in one turn; the items behind them wait for the next turn.
TURN_LIMIT_MS = 10.0
#: Turns that may run at once: while the commit of one is flushed, the next one decides.
MAX_TURNS = 4
#: Pause between two turns while the store is away.
RETRY_AFTER_OUTAGE_S = 0.2
#: Decisions that one write may contain; a job whose blueprint never waits still commits.
MAX_DECISIONS_PER_COMMIT = 64


class JobExecutor:
    """Runs turns. Only a handler that really suspends gets a task of its own."""

    def __init__(
        self,
        repository: JobRepository,
        leases: StorageBackend,
        registry: BlueprintRegistry,
        runner: HandlerRunner,
        dispatcher: Dispatcher,
        contexts: ContextFactory,
        clock: Clock,
        ids: IdGenerator,
        settings: ExecutorSettings,
        observer: EngineObserver,
    ) -> None:
        self._repository = repository
        self._registry = registry
        self._runner = runner
        self._dispatcher = dispatcher
        self._offers = TaskOffers(dispatcher, clock)
        self._contexts = contexts
        self._ids = ids
        self._settings = settings
        self._observer = observer
        self._inbox: deque[WorkItem] = deque()
        #: The ready queue may contain jobs. True at the start: an earlier run may have left some.
        self._ready = True
        self._turns = 0
        #: A turn is scheduled that has not begun.
        self._scheduled = False
        self._suspended = SuspendedHandlers(
            repository,
            leases,
            ids,
            settings,
            resume=self._resume,
            after_commit=self._after_commit,
            abandon=self._abandon,
            on_end=self._handler_ended,
        )
        self._stopping = False
        self._idle = asyncio.Event()
        #: A turn serves many requests, so it runs in none of their contexts.
        self._context = contextvars.copy_context()

    # -- incoming work ---------------------------------------------------------------------------

    def submit(
        self, jobs: Sequence[Job], quota: Quota | None = None
    ) -> "list[asyncio.Future[Job | CommitStatus]]":
        """New jobs; the first handler of each runs in the same write. The answer says why a job was not created."""
        loop = asyncio.get_running_loop()
        items = [WorkItem(job=job, quota=quota, submitted=loop.create_future()) for job in jobs]
        for item in items:
            self._enqueue(item)
        return [item.submitted for item in items if item.submitted is not None]

    def deliver(self, result: TaskResult) -> "asyncio.Future[ResultVerdict]":
        """Accepts a task result. Resolved after the resulting commit is flushed."""
        future: asyncio.Future[ResultVerdict] = asyncio.get_running_loop().create_future()
        self._enqueue(WorkItem(result=result, result_future=future))
        return future

    def wake(self) -> None:
        """The ready queue may contain jobs."""
        self._ready = True
        self._schedule()

    def start(self) -> None:
        """Accepts work. The first turn finds the jobs that wait in the store."""
        self._stopping = False
        self._ready = True

    async def stop(self) -> None:
        """Finishes the turns that have begun. The rest fails with OrchestratorStopped; stored jobs stay stored."""
        self._stopping = True
        self._suspended.cancel()
        while len(self._suspended) or self._turns:
            self._idle.clear()
            await self._idle.wait()
        for item in self._inbox:
            item.fail(OrchestratorStopped())
        self._inbox.clear()

    def _enqueue(self, item: WorkItem) -> None:
        if self._stopping:
            item.fail(OrchestratorStopped())
            return
        self._inbox.append(item)
        self._schedule()

    # -- turns -----------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Starts a turn in the next iteration of the event loop, for everything that arrives in this one."""
        if self._scheduled or self._stopping or self._turns >= MAX_TURNS:
            return
        if not self._inbox and not self._may_claim():
            return
        self._scheduled = True
        self._turns += 1
        asyncio.get_running_loop().create_task(
            self._begin_turn(), name="executor-turn", context=self._context
        )

    def _may_claim(self) -> bool:
        return self._ready and self._suspended.free > 0

    async def _begin_turn(self) -> None:
        self._scheduled = False
        error = None
        try:
            if not self._stopping:
                await self._run_turn()
        except Exception as problem:  # noqa: BLE001  # logged by `_turn_ended`
            error = problem
        finally:
            self._turns -= 1
            self._idle.set()
        self._turn_ended(error)

    def _turn_ended(self, error: Exception | None) -> None:
        if isinstance(error, StorageFailed):
            return  # final: the orchestrator stops
        if isinstance(error, StorageUnavailable):  # the store logs the outage itself
            self._ready = True
            asyncio.get_running_loop().call_later(RETRY_AFTER_OUTAGE_S, self._schedule)
            return
        if error is not None:
            log.error("Executor turn failed", exc_info=error, extra={"action": "turn_failed"})
        self._schedule()

    def _handler_ended(self) -> None:
        self._idle.set()
        self._schedule()

    async def _run_turn(self) -> None:
        claims = self._may_claim()
        items = self._take_items(claims)
        try:
            if claims:
                items += await self._claim_ready_jobs(len(items))
            if self._inbox:
                self._schedule()
            await self._load_jobs_and_tasks(items)
            await self._apply_results(items)
            items = self._run_handlers(items)
            self._match_new_tasks(items)
            await self._commit(self._changes_of(items))
        except BaseException as error:
            for item in items:
                self._abandon(item, error)
            if isinstance(error, StorageUnavailable):
                self._requeue_claimed(items)
            raise

    # -- take, claim, load -----------------------------------------------------------------------

    def _take_items(self, claims: bool) -> list[WorkItem]:
        limit = MAX_ITEMS_PER_TURN - CLAIMED_ITEMS_PER_TURN if claims else MAX_ITEMS_PER_TURN
        return [self._inbox.popleft() for _ in range(min(limit, len(self._inbox)))]

    async def _claim_ready_jobs(self, taken: int) -> list[WorkItem]:
        settings = self._settings
        limit = min(MAX_ITEMS_PER_TURN - taken, self._suspended.free)
        jobs = await self._repository.claim_ready(
            settings.instance, self._registry.versions(), limit, settings.lease_s
        )
        self._ready = len(jobs) == limit
        return [WorkItem(base=job, job=job) for job in jobs]

    async def _load_jobs_and_tasks(self, items: list[WorkItem]) -> None:
        """Loads the job and the task of every result, and the branches of every claimed job that needs them."""
        results: list[tuple[WorkItem, TaskResult]] = []
        for item in items:
            if item.result is not None:
                results.append((item, item.result))
            elif item.base is not None and self._needs_branches(item.base):
                item.branches = await self._repository.tasks_of(item.base.id)
        if results:
            jobs, tasks = await self._repository.load(
                [result.job_id for _, result in results],
                [task_id_of_attempt(result.task_id) for _, result in results],
            )
            for (item, _), job, task in zip(results, jobs, tasks, strict=True):
                item.base, item.task = job, task
        self._contexts.new_turn()

    def _needs_branches(self, job: Job) -> bool:
        """An aggregator reads its branches, and so does the end of a cancelled fan-out."""
        if isinstance(job.wait, AwaitBranches):
            return True
        blueprint = self._registry.find(job.blueprint, job.version)
        info = blueprint.graph.states.get(job.state) if blueprint is not None else None
        return info is not None and info.is_aggregator

    # -- apply results ---------------------------------------------------------------------------

    async def _apply_results(self, items: list[WorkItem]) -> None:
        for item in items:
            if item.result is None:
                continue
            try:
                self._apply_result(item, item.result)
                if item.task is not None and item.task.branch and item.step is not None:
                    await self._end_siblings(item, item.task)
            except StorageOutcomeUnknown:
                raise
            except Exception as error:  # an invalid result must not fail the other items of the turn
                log.exception("a result could not be applied", extra={"action": "judge_failed"})
                item.fail(error)
                item.done = True

    def _apply_result(self, item: WorkItem, result: TaskResult) -> None:
        job, task = item.base, item.task
        context = self._contexts.of_turn(job).decision
        if result.error is not None or result.status is not None:
            context = self._contexts.with_jitter(context)
        found = apply_result(job, task, result, context)
        if isinstance(found, ResultVerdict):
            if not is_held(task, result):
                self._dispatcher.release(result.worker_id, result.task_id)
            if found is not ResultVerdict.ACCEPTED:
                self._observer.result_ignored(job, found)
            item.answer_worker(found)
            item.done = True
            return
        self._dispatcher.release(result.worker_id, result.task_id)
        if isinstance(found, TaskStep):
            item.task_step = found
        else:
            item.add(found)

    async def _end_siblings(self, item: WorkItem, task: Task) -> None:
        """A branch that fails its job ends the other branches of the fan-out too."""
        assert item.base is not None
        assert item.step is not None
        siblings = await self._repository.tasks_of(task.job_id)
        item.cancelled_tasks = tuple(
            one for one in siblings if one.id != task.id and one.state in HELD_STATES
        )
        item.step = with_siblings(item.base, item.step, siblings)
        item.job = item.step.job
        self._contexts.new_turn()

    # -- run handlers ----------------------------------------------------------------------------

    def _run_handlers(self, items: list[WorkItem]) -> list[WorkItem]:
        """Runs handlers for at most `TURN_LIMIT_MS`; items behind that go back to the head of the inbox."""
        spent_ms = 0.0
        for index, item in enumerate(items):
            if item.done or item.task_step is not None:
                continue
            try:
                spent_ms += self._run_handlers_of(item)
            except (
                Exception
            ) as error:  # a job that cannot be decided must not fail the other items of the turn
                fields = {"action": "play_failed", "job_id": item.job.id if item.job is not None else ""}
                log.exception("a job could not be decided", extra=fields)
                self._abandon(item, error)
                item.done = True
            if spent_ms > TURN_LIMIT_MS:
                rest = items[index + 1 :]
                # Items whose result was applied stay in this turn: they only have to be written.
                late = [one for one in rest if not one.done and one.task_step is None]
                for one in late:
                    one.step = one.task = None
                self._inbox.extendleft(reversed(late))
                return items[: index + 1] + [one for one in rest if one.done or one.task_step is not None]
        return items

    def _run_handlers_of(self, item: WorkItem) -> float:
        """Runs handlers and adds their decisions until the job waits, ends, or a handler suspends.

        Returns how long the handlers took, in milliseconds.
        """
        assert item.job is not None
        context, blueprint = self._contexts.of_turn(item.job)
        self._add_first_step(item, item.job, context)
        if blueprint is None or context.graph is None:
            return 0.0  # committed without the handler, and queued for an instance that has the version
        spent_ms = 0.0
        for _ in range(MAX_DECISIONS_PER_COMMIT):
            job = item.job
            if not job.runnable(1):
                break
            if self._suspended.free <= 0 and item.step is not None:
                break  # too many handlers are suspended: the steps so far are written, and the job is queued
            outcome = self._runner.run(blueprint, context.graph, job, item.branches)
            if isinstance(outcome, asyncio.Future):
                self._suspended.start(item, outcome)
                break
            self._add_outcome(item, job, outcome, context)
            spent_ms += outcome.duration_ms
            if spent_ms > self._settings.sticky_s * 1000:
                break
        return spent_ms

    @staticmethod
    def _add_first_step(item: WorkItem, job: Job, context: DecisionContext) -> None:
        """The step before the first handler: the creation of the job, or the end of its fan-out."""
        if item.base is None and item.step is None:
            item.add(transitions.create(job, context))
        elif isinstance(job.wait, AwaitBranches):
            if job.status is JobStatus.CANCELLING:
                item.add(signals.cancelled(job, item.branches or [], context))
            elif item.step is None:
                item.add(signals.aggregate(job, context))

    def _add_outcome(
        self, item: WorkItem, job: Job, outcome: HandlerOutcome, context: DecisionContext
    ) -> None:
        if isinstance(outcome, Decision):
            item.add(transitions.decide(job, outcome, context, tuple(item.branches or ())))
            item.branches = None
        else:
            item.add(transitions.handler_failed(job, outcome, self._contexts.with_jitter(context)))

    async def _resume(self, item: WorkItem, outcome: HandlerOutcome) -> None:
        """Continues an item whose handler was suspended, outside of a turn."""
        assert item.job is not None
        self._contexts.new_turn()
        self._add_outcome(item, item.job, outcome, self._contexts.of_turn(item.job).decision)
        self._run_handlers_of(item)
        if not item.done:
            self._match_new_tasks([item])
            await self._commit(self._changes_of([item]))

    # -- match, commit ---------------------------------------------------------------------------

    def _match_new_tasks(self, items: list[WorkItem]) -> None:
        for item in items:
            if not item.done and item.step is not None and item.step.tasks:
                self._offers.match(item, item.step)

    def _changes_of(self, items: list[WorkItem]) -> list[PendingChange]:
        pending: list[PendingChange] = []
        task_items: list[tuple[WorkItem, TaskStep]] = []
        for item in items:
            if item.done:
                continue
            if item.task_step is not None:
                task_items.append((item, item.task_step))
            elif item.step is not None:
                change = item.step.change(item.base, self._ids.new_token(), quota=item.quota)
                pending.append(PendingChange(change, [item]))
        for step, group in merge_by_job(task_items):
            pending.append(PendingChange(step.change(self._ids.new_token()), group))
        return pending

    async def _commit(self, pending: list[PendingChange]) -> None:
        if not pending:
            return
        changes = [each.change for each in pending]
        outcomes = await self._repository.commit(changes, self._settings.instance)
        for (change, items), outcome in zip(pending, outcomes, strict=True):
            for item in items:
                self._after_commit(item, change, outcome)

    # -- notify ----------------------------------------------------------------------------------

    def _after_commit(self, item: WorkItem, change: Change, outcome: CommitOutcome) -> None:
        """The effects of a commit. All of them can be derived from the store again (see hints.py)."""
        if not outcome.ok:
            self._after_refusal(item, outcome)
            return
        self._offers.send(item, outcome.not_offered)
        for task in item.cancelled_tasks:
            self._dispatcher.cancel(task.worker_id, [task.attempt_id])
        item.cancelled_tasks = ()
        if item.result_future is not None:
            item.answer_worker(ResultVerdict.ACCEPTED)
        elif change.job is not None:
            item.answer_submitter(change.job)

    def _after_refusal(self, item: WorkItem, outcome: CommitOutcome) -> None:
        self._offers.release(item)
        if outcome.kind is CommitStatus.UNSTORABLE:
            self._reject_unstorable(item, outcome.reason)
        elif item.result is not None and outcome.kind is not CommitStatus.MISSING:
            self._try_again(item)
        elif item.result is not None:
            item.answer_worker(ResultVerdict.JOB_NOT_FOUND)
        else:
            item.answer_submitter(outcome.kind)  # of an existing job, the submitter compares what is stored

    def _reject_unstorable(self, item: WorkItem, reason: str) -> None:
        """A value that no store can keep passed the checks. Only its own item fails."""
        log.error("a change could not be stored: %s", reason, extra={"action": "unstorable"})
        if item.result is not None and item.result.data is not None:
            failure = TaskFailure("PERMANENT_ERROR", f"the result cannot be stored: {reason}")
            item.result = replace(item.result, data=None, status=None, error=failure)
            self._try_again(item)
        elif item.base is not None and item.result is None:
            failed = HandlerFailed(code="unstorable", message=reason, final=True)
            context = self._contexts.of_turn(item.base).decision
            broken = WorkItem(base=item.base)
            broken.add(transitions.handler_failed(item.base, failed, context))
            self._enqueue(broken)
        else:
            item.fail(NotSerializable("the change", reason))

    def _try_again(self, item: WorkItem) -> None:
        """Another writer was first: load the job again and apply the result again."""
        self._enqueue(WorkItem(result=item.result, result_future=item.result_future))

    def _requeue_claimed(self, items: list[WorkItem]) -> None:
        """Claimed jobs have no caller, and this instance still holds their leases: they run when the store is back."""
        for item in items:
            if item.base is not None and item.result is None and not item.done:
                self._inbox.append(WorkItem(base=item.base, job=item.base))

    def _abandon(self, item: WorkItem, error: BaseException) -> None:
        """Fails the callers of an item and frees its slots. A cancellation means that the orchestrator stops."""
        item.fail(error if isinstance(error, Exception) else OrchestratorStopped())
        self._offers.release(item)
