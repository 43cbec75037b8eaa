"""JobExecutor: takes jobs on in turns. A turn decides for many jobs and writes once."""

import asyncio
import contextvars
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...blueprint import StateMachineBlueprint
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
from ...machine.step import DecisionContext, MachineSettings, Step
from ...machine.task_results import TaskStep, apply_result, with_siblings
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
    TaskWrite,
    task_id_of_attempt,
)
from ...storage.base import StorageBackend
from ..handler_runner import HandlerRunner
from .act import Act, Roll

log = logging.getLogger("regista.engine")

#: Acts of one turn at most, and the time after which a turn is cut: nobody waits for a crowd.
_TURN_ACTS = 128
#: Of them, for jobs that wait in the ready queue while newcomers are taken on at once: nobody starves.
_CLAIMED_ACTS = 32
_TURN_MS = 10.0
#: Turns that may wait for their flush at once: while one is on its way to the disk, the next decides.
_TURNS = 4
#: Pause between two turns while the store is away.
_STORE_AWAY_S = 0.2
#: Decisions that are folded into one write at most; a blueprint that never waits still commits.
_FOLD = 64

#: The scene of a version, and its blueprint where this instance has loaded it.
VersionContext = tuple[DecisionContext, StateMachineBlueprint | None]


class Settings(Struct, frozen=True, kw_only=True):
    """What the executor is told."""

    instance: str
    lease_s: float = 30.0
    #: How long a result waits for the handler behind it before it is committed alone (FENCES 5).
    patience_s: float = 0.02
    #: Handlers that may be suspended at once.
    max_slow: int = 1000
    machine: MachineSettings = MachineSettings()


class JobExecutor:
    """The heart. Submissions, results and claimed jobs come in as acts; a turn takes a handful of them,
    runs the handlers that are due, and commits everything in one call. Only a handler that really
    suspends gets a task of its own.
    """

    def __init__(
        self,
        storage: StorageBackend,
        library: BlueprintRegistry,
        runner: HandlerRunner,
        dispatcher: Dispatcher,
        clock: Clock,
        ids: IdGenerator,
        settings: Settings,
    ) -> None:
        self._storage = storage
        self._library = library
        self._runner = runner
        self._dispatcher = dispatcher
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._chance: random.Random = ids.random
        self._inbox: deque[Act] = deque()
        #: Jobs may wait in the ready queue. Starts true: a restart finds what an earlier run left.
        self._ready = True
        self._turns = 0
        #: Tasks that have taken a turn and would take another: to begin one costs more than some turns.
        self._free: list[asyncio.Future[None]] = []
        #: One of them is on its way to take what has arrived.
        self._scheduled = False
        self._slow: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._idle = asyncio.Event()
        self._stages: dict[tuple[str, str] | None, VersionContext] = {}
        #: Turns serve many: none of them shall run as if it were part of the request that set it off.
        self._context = contextvars.copy_context()
        #: Called with the job, if there is one, and why a worker's word about it was not followed.
        self.on_ignored: Callable[[Job | None, ResultVerdict], None] = lambda *_: None

    # -- coming in -------------------------------------------------------------------------------

    def submit(self, job: Job, quota: Quota | None = None) -> asyncio.Future[Job | CommitStatus]:
        """A new job; its first handler runs in the same write. EXISTS or OVER_QUOTA when it was not taken."""
        act = Act()
        act.job = job
        act.quota = quota
        act.born = asyncio.get_running_loop().create_future()
        self._enqueue(act)
        return act.born

    def submit_all(
        self, jobs: Sequence[Job], quota: Quota | None = None
    ) -> asyncio.Future[list[Job | CommitStatus]]:
        """The same for several; they are answered together, in their order."""
        roll = Roll(list(jobs), len(jobs), asyncio.get_running_loop().create_future())
        if not jobs:
            roll.done.set_result([])
        for place, job in enumerate(jobs):
            self._enqueue(Act(job=job, roll=roll, place=place, quota=quota))
        return roll.done

    def deliver(self, result: TaskResult) -> asyncio.Future[ResultVerdict]:
        """A worker's word; answered after the commit that it causes."""
        act = Act()
        act.result = result
        act.told = asyncio.get_running_loop().create_future()
        self._enqueue(act)
        return act.told

    def wake(self) -> None:
        """Jobs may wait in the ready queue."""
        self._ready = True
        self._schedule()

    def start(self) -> None:
        """Take acts (again). What waits in the store is found by the first turn."""
        self._stopping = False
        self._ready = True

    async def stop(self) -> None:
        """Let what is decided be written, and leave the rest to the leases."""
        self._stopping = True
        for task in list(self._slow):
            task.cancel()
        while self._slow or self._turns:
            self._idle.clear()
            await self._idle.wait()
        for free in self._free:
            free.cancel()
        self._free.clear()
        for act in self._inbox:
            act.fail(OrchestratorStopped())
        self._inbox.clear()

    def _enqueue(self, act: Act) -> None:
        if self._stopping:
            act.fail(OrchestratorStopped())
            return
        self._inbox.append(act)
        self._schedule()

    # -- turns -----------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """One turn for everything that arrives in this turn of the loop: it begins with the next one."""
        if self._scheduled or self._stopping or self._turns >= _TURNS:
            return
        if not self._inbox and not self._may_claim():
            return
        self._scheduled = True
        self._turns += 1
        while self._free:
            free = self._free.pop()
            if not free.done():  # else the process ends
                free.set_result(None)
                return
        asyncio.get_running_loop().create_task(
            self._take_turns(), name="executor-turns", context=self._context
        )

    def _may_claim(self) -> bool:
        return self._ready and len(self._slow) < self._settings.max_slow

    async def _take_turns(self) -> None:
        """Turn after turn, as they are due."""
        while True:
            error = None
            self._scheduled = False
            try:
                await self._turn()
            except Exception as problem:  # noqa: BLE001  # it is told by `_turned`
                error = problem
            finally:
                self._turns -= 1
                self._idle.set()
            self._turned(error)
            if self._stopping:
                return
            free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._free.append(free)
            del error  # nothing of the last turn is kept here until the next
            try:
                await free
            except asyncio.CancelledError:
                if not free.cancelled():  # a turn was given, and will not be taken
                    self._scheduled = False
                    self._turns -= 1
                    self._idle.set()
                raise

    def _turned(self, error: Exception | None) -> None:
        if error is not None:
            if isinstance(error, StorageFailed):
                return  # final: another turn would only spin until somebody stops us
            if isinstance(error, StorageUnavailable):
                # It says so itself, once.
                self._ready = True
                asyncio.get_running_loop().call_later(_STORE_AWAY_S, self._schedule)
                return
            log.error("a turn failed", exc_info=error, extra={"action": "turn_failed"})
        self._schedule()

    async def _turn(self) -> None:
        if self._stopping:
            return
        claims = self._may_claim()
        acts = self._take_acts(_TURN_ACTS - _CLAIMED_ACTS if claims else _TURN_ACTS)
        try:
            if claims:
                room = min(_TURN_ACTS - len(acts), self._settings.max_slow - len(self._slow))
                acts += await self._claim(room)
            if self._inbox:
                self._schedule()
            self._new_stages()
            known = [act for act in acts if act.result is not None or act.base is not None]
            if known:
                await self._prepare(known)
            acts = self._play_all(acts)
            await self._commit(acts)
        except BaseException as error:
            for act in acts:
                act.fail(error)
                self._take_back_offers(act)
            if isinstance(error, StorageUnavailable):
                self._keep_claimed(acts)
            raise

    def _take_acts(self, limit: int) -> list[Act]:
        """What came first."""
        if len(self._inbox) > limit:
            return [self._inbox.popleft() for _ in range(limit)]
        acts = list(self._inbox)
        self._inbox.clear()
        return acts

    def _keep_claimed(self, acts: list[Act]) -> None:
        """Nobody else is waiting to hear of these, and their leases are ours: they are tried again when the store is back."""
        for act in acts:
            if act.base is not None and act.result is None and not act.settled:
                again = Act()
                again.base = again.job = act.base
                self._inbox.append(again)

    async def _claim(self, limit: int) -> list[Act]:
        settings = self._settings
        jobs = await self._storage.claim_ready(
            settings.instance, self._library.versions(), limit, settings.lease_s
        )
        self._ready = len(jobs) == limit
        acts = []
        for job in jobs:
            act = Act()
            act.base = act.job = job
            acts.append(act)
        return acts

    async def _prepare(self, acts: list[Act]) -> None:
        """Load what the acts need, in one go. A new job needs nothing."""
        told: list[tuple[Act, TaskResult]] = []
        for act in acts:
            result, base = act.result, act.base
            if result is not None:
                if base is None:
                    told.append((act, result))
            elif base is not None and self._has_branches(base):
                act.tasks = await self._storage.tasks_of(base.id)
        jobs: Sequence[Job | None] = ()
        tasks: Sequence[Task | None] = ()
        if told:
            jobs, tasks = await self._storage.load(
                [result.job_id for _, result in told],
                [task_id_of_attempt(result.task_id) for _, result in told],
            )
        self._new_stages()
        for (act, result), job, task in zip(told, jobs, tasks, strict=True):
            try:
                self._judge(act, job, task, result)
                if task is not None and task.branch and act.step is not None:
                    await self._end_siblings(act, task)
            except StorageOutcomeUnknown:
                raise
            except Exception as error:  # one bad word must not cost the others of this turn
                log.exception("a result could not be judged", extra={"action": "judge_failed"})
                act.fail(error)
                act.settled = True

    def _judge(self, act: Act, job: Job | None, task: Task | None, result: TaskResult) -> None:
        context, _ = self._stage(job)
        if result.error is not None or result.status is not None:
            context = self._chancy(context)
        found = apply_result(job, task, result, context)
        if isinstance(found, Step):
            self._dispatcher.release(result.worker_id, result.task_id)
            act.base = job
            act.add(found)
        elif isinstance(found, TaskStep):
            self._dispatcher.release(result.worker_id, result.task_id)
            act.task_step = found
        else:
            if not _still_has(task, result):
                self._dispatcher.release(result.worker_id, result.task_id)
            if found is not ResultVerdict.ACCEPTED:
                self.on_ignored(job, found)
            act.answer(found)
            act.settled = True

    async def _end_siblings(self, act: Act, task: Task) -> None:
        """A branch that fails its job ends the others of the fan-out too."""
        assert act.base is not None
        assert act.step is not None
        siblings = await self._storage.tasks_of(task.job_id)
        act.called_off = tuple(one for one in siblings if one.id != task.id and one.state in HELD_STATES)
        act.step = with_siblings(act.base, act.step, siblings)
        act.job = act.step.job
        self._new_stages()

    def _has_branches(self, job: Job) -> bool:
        """An aggregator sees its branches, and so does the end of a cancelled fan-out."""
        if isinstance(job.wait, AwaitBranches):
            return True
        blueprint = self._library.find(job.blueprint, job.version)
        info = blueprint.graph.states.get(job.state) if blueprint is not None else None
        return info is not None and info.is_aggregator

    # -- playing ---------------------------------------------------------------------------------

    def _play_all(self, acts: list[Act]) -> list[Act]:
        """Play until the turn has lasted long enough; the rest goes back to the head of the line."""
        spent_ms = 0.0
        for index, act in enumerate(acts):
            if act.settled or act.task_step is not None:
                continue
            try:
                spent_ms += self._play(act)
            except (
                Exception
            ) as error:  # one record that cannot be played must not cost the others of this turn
                told = {"action": "play_failed", "job_id": act.job.id if act.job is not None else ""}
                log.exception("a job could not be played", extra=told)
                self._take_back_offers(act)
                act.fail(error)
                act.settled = True
            if spent_ms > _TURN_MS:
                rest = acts[index + 1 :]
                # What was judged or settled stays in this turn: it only has to be written.
                late = [a for a in rest if not a.settled and a.task_step is None]
                self._inbox.extendleft(reversed(late))
                return acts[: index + 1] + [a for a in rest if a.settled or a.task_step is not None]
        return acts

    def _play(self, act: Act) -> float:
        """Run handlers and fold their decisions until the job waits, ends, or a handler suspends.

        Returns the elapsed_ms that the handlers took.
        """
        job = act.job
        assert job is not None
        context, blueprint = self._stage(job)
        self._open(act, job, context)
        if blueprint is None or context.graph is None:
            return 0.0  # committed without the handler and queued for whoever has the version
        spent_ms = 0.0
        for _ in range(_FOLD):
            job = act.job
            if job is None or not job.runnable(1):
                break
            if len(self._slow) >= self._settings.max_slow and act.step is not None:
                break  # too many handlers are suspended: what came is written, and the job waits in line
            verdict = self._runner.run(blueprint, context.graph, job, act.tasks)
            if isinstance(verdict, asyncio.Future):
                self._go_slow(act, verdict)
                break
            self._take(act, job, verdict, context)
            spent_ms += verdict.duration_ms
            if spent_ms > self._settings.patience_s * 1000:
                break
        return spent_ms

    @staticmethod
    def _open(act: Act, job: Job, context: DecisionContext) -> None:
        """The first step of an act that does not begin with a result."""
        if act.base is None and act.step is None:
            act.add(transitions.create(job, context))
        elif isinstance(job.wait, AwaitBranches):
            if job.status is JobStatus.CANCELLING:
                act.add(signals.cancelled(job, act.tasks or [], context))
            elif act.step is None:
                act.add(signals.aggregate(job, context))

    def _take(self, act: Act, job: Job, verdict: Decision | HandlerFailed, context: DecisionContext) -> None:
        if isinstance(verdict, Decision):
            act.add(transitions.decide(job, verdict, context, tuple(act.tasks or ())))
            act.tasks = None
        else:
            act.add(transitions.handler_failed(job, verdict, self._chancy(context)))

    def _stage(self, job: Job | None) -> VersionContext:
        """What the machine may know, and whose handlers run. One serves all jobs of a version within a turn."""
        version = (job.blueprint, job.version) if job is not None else None
        stage = self._stages.get(version)
        if stage is None:
            blueprint = self._library.find(*version) if version is not None else None
            context = DecisionContext(
                now=self._clock.now(),
                graph=blueprint.graph if blueprint is not None else None,
                find_graph=self._library.newest_graph,
                settings=self._settings.machine,
            )
            stage = self._stages[version] = (context, blueprint)
        return stage

    def _new_stages(self) -> None:
        """A new turn begins, or somebody was waited for: time has passed."""
        self._stages.clear()

    def _chancy(self, context: DecisionContext) -> DecisionContext:
        """The scene with a throw of its own, where something is tried again: a crowd must not come back at once."""
        return replace(context, random=self._chance.random())

    # -- writing ---------------------------------------------------------------------------------

    async def _commit(self, acts: list[Act]) -> None:
        changes: list[Change] = []
        groups: list[list[Act]] = []
        branches: list[tuple[Act, TaskStep]] = []
        for act in acts:
            if act.settled:
                continue
            if act.task_step is not None:
                branches.append((act, act.task_step))
            elif act.step is not None:
                changes.append(self._job_change(act, act.step))
                groups.append([act])
        for step, group in self._together(branches) if branches else ():
            changes.append(step.change(self._ids.new_token()))
            groups.append(group)
        if not changes:
            return
        outcomes = await self._storage.commit(changes, self._settings.instance)
        for change, group, outcome in zip(changes, groups, outcomes, strict=True):
            for act in group:
                self._after(act, change, outcome)

    def _job_change(self, act: Act, step: Step) -> Change:
        tasks = self._match(act, step.tasks) if step.tasks else None
        return step.change(act.base, self._ids.new_token(), tasks=tasks, quota=act.quota)

    def _together(self, branches: list[tuple[Act, TaskStep]]) -> list[tuple[TaskStep, list[Act]]]:
        """Branches of one job that end in one turn are one change."""
        groups: dict[str, tuple[TaskStep, list[Act]]] = {}
        singles: list[tuple[TaskStep, list[Act]]] = []
        seen: set[str] = set()
        for act, step in branches:
            task_id = step.tasks[0].task.id
            sofar, group = groups.get(step.job_id, (step, []))
            if task_id in seen or sofar.revision != step.revision:
                # The same word twice in one turn, or one that was judged later: its own change, and one will lose.
                singles.append((step, [act]))
                continue
            seen.add(task_id)
            if group:
                group.append(act)
                groups[step.job_id] = (sofar.then(step), group)
            else:
                groups[step.job_id] = (step, [act])
        return [*groups.values(), *singles]

    def _match(self, act: Act, writes: tuple[TaskWrite, ...]) -> tuple[TaskWrite, ...]:
        """Offer new tasks to free workers in the very write that creates them."""
        matched: list[TaskWrite] = []
        for index, write in enumerate(writes):
            task = write.task
            if write.attempt or not task.waiting:
                continue  # not a new one
            # It was queued in this very turn: that is now.
            offered = self._dispatcher.reserve(task, task.queued_at or self._clock.now())
            if offered is not None:
                act.offers += (offered,)
                found = TaskWrite(offered)
            elif notify_instance := self._dispatcher.peer_for(task):
                found = TaskWrite(task, notify_instance=notify_instance)
            else:
                continue
            matched = matched or list(writes)
            matched[index] = found
        return tuple(matched) if matched else writes

    def _after(self, act: Act, change: Change, outcome: CommitOutcome) -> None:
        """The effects of a commit: all of them follow from what is stored (see effects.py)."""
        if outcome.ok:
            if act.offers:
                self._deliver(act.offers, outcome.not_offered)
            for task in act.called_off:
                self._dispatcher.cancel(task.worker_id, [task.attempt_id])
            act.called_off = ()
            if act.told is not None:
                act.answer(ResultVerdict.ACCEPTED)
            elif change.job is not None:
                act.welcome(change.job)
            return
        self._take_back_offers(act)
        if outcome.kind is CommitStatus.UNSTORABLE:
            self._refuse(act, outcome.reason)
        elif act.result is not None and outcome.kind is not CommitStatus.MISSING:
            self._again(act)
        elif act.result is not None:
            act.answer(ResultVerdict.JOB_NOT_FOUND)
        else:
            act.welcome(outcome.kind)  # where it exists, the submitter compares what is there

    def _deliver(self, offers: tuple[Task, ...], not_offered: tuple[str, ...]) -> None:
        """Send what the store has stored as offered. The rest waits in its lane, where another worker may take it."""
        for task in offers:
            if task.id in not_offered:
                self._dispatcher.release(task.worker_id, task.attempt_id)
        stored = [task for task in offers if task.id not in not_offered] if not_offered else offers
        self._dispatcher.deliver(stored)

    def _take_back_offers(self, act: Act) -> None:
        """The slots are free again. If the offers were stored after all, heartbeats will lack them (FENCES 10)."""
        for task in act.offers:
            self._dispatcher.release(task.worker_id, task.attempt_id)

    def _refuse(self, act: Act, reason: str) -> None:
        """Something slipped through a door that no store can keep: only its own act may suffer for it."""
        log.error("a change could not be stored: %s", reason, extra={"action": "unstorable"})
        if act.result is not None and act.result.data is not None:
            failure = TaskFailure("PERMANENT_ERROR", f"the result cannot be stored: {reason}")
            act.result = replace(act.result, data=None, status=None, error=failure)
            self._again(act)
        elif act.base is not None and act.result is None:
            broken = Act()
            broken.base = act.base
            failed = HandlerFailed(code="unstorable", message=reason, final=True)
            broken.add(transitions.handler_failed(act.base, failed, self._stage(act.base)[0]))
            self._enqueue(broken)
        else:
            act.fail(NotSerializable("the change", reason))

    def _again(self, act: Act) -> None:
        """Somebody else was first: look at the job anew and judge again."""
        fresh = Act()
        fresh.result, fresh.told = act.result, act.told
        self._enqueue(fresh)

    # -- slow handlers ---------------------------------------------------------------------------

    def _go_slow(self, act: Act, verdict: "asyncio.Future[Decision | HandlerFailed]") -> None:
        task = asyncio.get_running_loop().create_task(self._finish_slowly(act, verdict), name="slow-handler")
        act.settled = True  # this turn is through with it
        self._slow.add(task)
        task.add_done_callback(self._slow_done)

    def _slow_done(self, task: asyncio.Task[None]) -> None:
        self._slow.discard(task)
        self._idle.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StorageOutcomeUnknown):
            log.error("a slow handler's turn failed", exc_info=error, extra={"action": "slow_turn_failed"})
        self._schedule()

    async def _finish_slowly(self, act: Act, running: "asyncio.Future[Decision | HandlerFailed]") -> None:
        """See one suspended handler through: patience first, then a lease of its own (FENCES 5)."""
        try:
            if not await _done_within(running, self._settings.patience_s) and not await self._hold(act):
                return
            while not await _done_within(running, self._settings.lease_s / 3):
                if not await self._still_held(act):
                    return
            act.settled = False
            self._new_stages()
            assert act.job is not None
            self._take(act, act.job, running.result(), self._stage(act.job)[0])
            self._play(act)
            if not act.settled:
                await self._commit([act])
        except BaseException as error:
            # Cancelled: we stop. With any other error whoever waits may try again.
            act.fail(error if isinstance(error, Exception) else OrchestratorStopped())
            self._take_back_offers(act)
            raise
        finally:
            if not running.done():
                running.cancel()

    async def _hold(self, act: Act) -> bool:
        """Commit what came before the handler, so that whoever waits is answered; keep the job."""
        if act.step is None:
            return await self._still_held(act)
        change = act.step.change(
            act.base, self._ids.new_token(), quota=act.quota, keep_lease_s=self._settings.lease_s
        )
        (outcome,) = await self._storage.commit([change], self._settings.instance)
        self._after(act, change, outcome)
        if outcome.ok and change.job is not None:
            act.committed(change.job)
            act.result = act.born = act.told = act.roll = None
        return outcome.ok

    async def _still_held(self, act: Act) -> bool:
        assert act.base is not None
        settings = self._settings
        return bool(await self._storage.extend(settings.instance, [act.base.id], settings.lease_s))


def _still_has(task: Task | None, result: TaskResult) -> bool:
    """The worker has the attempt in its hands, whatever it said about it."""
    return (
        task is not None
        and task.attempt_id == result.task_id
        and task.worker_id == result.worker_id
        and task.state in HELD_STATES
    )


async def _done_within(future: "asyncio.Future[Decision | HandlerFailed]", seconds: float) -> bool:
    await asyncio.wait([future], timeout=seconds)
    return future.done()
