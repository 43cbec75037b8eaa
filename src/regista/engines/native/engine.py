"""NativeEngine: jobs, run by ourselves over a store."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import datetime
from hashlib import sha256
from math import inf, isfinite
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from ...blueprint.registry import BlueprintRegistry
from ...clock import Clock, IdGenerator, derived_id
from ...dispatch.dispatcher import Dispatcher
from ...dispatch.exchange import Exchange
from ...errors import (
    BadSearchAttribute,
    BlueprintNotFound,
    IdempotencyConflict,
    JobNotFound,
    NotSerializable,
    OrchestratorStopped,
    RegistaError,
    StorageError,
    StorageOutcomeUnknown,
    WebhookRefused,
)
from ...machine import signals, transitions
from ...machine.step import DecisionContext, Step
from ...machine.task_results import TaskStep
from ...model import (
    HELD_STATES,
    Change,
    CommitStatus,
    EventType,
    Job,
    JobMessage,
    JobMessageKind,
    Quota,
    ResultVerdict,
    Task,
    TaskResult,
    job_id_of_task,
)
from ...model.attributes import WrongAttribute, checked
from ...model.audit import AuditedAction
from ...serialization import to_storable, to_storable_dict, to_storable_text
from ...storage.base import StorageBackend
from ...trace_context import current_context
from ..base import MonthlyQuota, Submission, WaitResult
from ..handler_runner import HandlerRunner, approval_token
from ..quotas import Ledger
from .effects import Effects
from .executor import JobExecutor, Settings
from .waiting import Waiting

log = logging.getLogger("regista.engine")

#: Losing a race this often means that something is wrong, not that somebody was faster.
_MAX_RACES = 1000
#: A batch up to this size is taken on at once; a larger one is acknowledged first and run from the queue.
_STICKY_BATCH = 128
#: How long a stop waits for the store to take back what was claimed.
_PARTING_S = 1.0
#: Messages between jobs that are read at once.
_MESSAGES = 100
#: Why a new job may not be taken.
_NOT_TAKEN = frozenset({CommitStatus.EXISTS, CommitStatus.OVER_QUOTA})
#: How a key of the layout of UUID version 7 looks: 48 bits of time come first.
_TIMED = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}\Z")
_in_order = msgspec.msgpack.Encoder(order="sorted").encode
_decode_submission = msgspec.msgpack.Decoder(Submission).decode

#: The events that say what somebody did; they carry who it was.
_BY_HAND = frozenset(
    {
        EventType.CANCEL_REQUESTED,
        EventType.APPROVAL_GIVEN,
        EventType.JOB_RELEASED,
        EventType.JOB_FINISHED,
    }
)

_Answer = Job | IdempotencyConflict
Decide = Callable[[Job, list[Task], DecisionContext], Step | TaskStep | None]
DecideTask = Callable[[Job, Task, DecisionContext], Step | TaskStep | None]


class NativeEngine:
    """Accepts jobs and signals, and has the executor run them."""

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
        self.library = library
        self.dispatcher = dispatcher
        self.executor = JobExecutor(storage, library, runner, dispatcher, clock, ids, settings)
        self.effects = Effects(self.executor, dispatcher, settings.instance)
        self.effects.on_message = self._post
        self.exchange = Exchange(
            storage, dispatcher.match_index.connected, dispatcher.elsewhere, settings.instance
        )
        self.effects.on_slots = self.exchange.hear
        self.effects.on_cancel = self._send_cancels
        self._waiting = Waiting(storage, self.effects, clock)
        self._ledger = Ledger(storage, clock)
        self._storage = storage
        self._runner = runner
        self._clock = clock
        self._ids = ids
        self._settings = settings
        #: Says where a new job tells of itself, by its client and the URL that it names; WebhookRefused: not there.
        self.webhook_for: Callable[[str, str | None], str | None] = lambda _, asked: asked
        self._deaf: Callable[[], None] | None = None
        self._posting: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Hear the store, say what can be run here, and pick up what waits."""
        if self._deaf is not None:
            return
        self._runner.secret = self._runner.secret or await self._storage.secret("approval")
        self.executor.start()
        self.dispatcher.start()
        if self._storage.shared:
            self.exchange.start()
        self._deaf = self._storage.listen(self.effects.hear)
        await self.attend()
        await self._relinquish()
        self.executor.wake()
        self._post()

    async def stop(self) -> None:
        """Finish what is decided; the rest is stored and goes on with the next start."""
        if self._deaf is None:
            return
        self._deaf()
        self._deaf = None
        self.effects.give_up(OrchestratorStopped())
        await self.executor.stop()
        self._runner.stop()
        with contextlib.suppress(StorageOutcomeUnknown, TimeoutError):  # then the leases lapse
            async with asyncio.timeout(_PARTING_S):
                await self._relinquish()
        await self.exchange.stop()
        await self.dispatcher.stop()
        for task in (*self._background, *([self._posting] if self._posting else [])):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _relinquish(self) -> None:
        """Let others have what this instance claimed, in this life or in one that was killed."""
        returned = await self._storage.relinquish(self._settings.instance)
        if returned:
            told = {"action": "relinquished", "jobs": returned}
            log.info("%d jobs that were claimed here are back in line", returned, extra=told)

    async def attend(self) -> None:
        """Say which versions this instance can run, for three beats."""
        await self._storage.attend(self._settings.instance, self.library.versions(), self._settings.lease_s)

    # -- clients ---------------------------------------------------------------------------------

    async def submit(self, submission: Submission, allowance: MonthlyQuota | None = None) -> Job:
        """Accept a job; durable when this returns. Its first handler may have run by then."""
        self._must_run()
        job = self._new_job(submission, self._clock.now(), current_context())
        quota = None if allowance is None else allowance.quota
        if (not job.body_hash or await self._known(submission, job) is None) and (
            quota is None or await self._ledger.is_far(quota, 1)
        ):
            written = self.executor.submit(job, quota)
            born = await (written if quota is None else self._ledger.follow(quota, written))
            if isinstance(born, Job):
                return born
        (answer,) = await self._create([submission], [job], allowance)
        if isinstance(answer, RegistaError):
            raise answer
        return answer

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Job | IdempotencyConflict]:
        """Accept several jobs with one flush; the answers stand in the order asked (FENCES 17).

        All are checked before any is written. A key that was used with another body is refused in its
        own place, and hinders nobody else.
        """
        self._must_run()
        now = self._clock.now()
        trace = current_context()
        jobs = [self._new_job(submission, now, trace) for submission in submissions]
        answers = await self._create(submissions, jobs)
        return [answer for answer in answers if isinstance(answer, _Answer)]

    async def submit_each(
        self, submissions: Sequence[Submission], allowance: MonthlyQuota | None = None
    ) -> list[Job | RegistaError]:
        """The same, but whatever is wrong with one is told in its place, and the others are accepted."""
        self._must_run()
        answers: list[Job | RegistaError] = []
        sound: list[tuple[int, Submission, Job]] = []
        now, trace = self._clock.now(), current_context()
        for index, submission in enumerate(submissions):
            try:
                wished = self._new_job(submission, now, trace)
            except (NotSerializable, BadSearchAttribute, BlueprintNotFound, WebhookRefused) as refusal:
                answers.append(refusal)
            else:
                answers.append(wished)
                sound.append((index, submission, wished))
        created = await self._create([one for _, one, _ in sound], [job for _, _, job in sound], allowance)
        for (index, _, _), answer in zip(sound, created, strict=True):
            answers[index] = answer
        return answers

    async def _create(
        self, submissions: Sequence[Submission], jobs: Sequence[Job], allowance: MonthlyQuota | None = None
    ) -> list[Job | RegistaError]:
        # A key that is there already is answered from the store: no handler runs for it again.
        taken = await self._taken(jobs)
        answers: list[Job | RegistaError | None] = [
            await self._known(*pair) if pair[1].id in taken else None
            for pair in zip(submissions, jobs, strict=True)
        ]
        fresh = [index for index, answer in enumerate(answers) if answer is None]
        born = await self._bear(
            [jobs[index] for index in fresh], None if allowance is None else allowance.quota
        )
        used_up = None
        if allowance is not None and CommitStatus.OVER_QUOTA in born:
            used_up = await self._ledger.refusal(allowance)
        for index, job in zip(fresh, born, strict=True):
            if isinstance(job, Job):
                answers[index] = job
            elif job is CommitStatus.OVER_QUOTA:
                answers[index] = used_up
            else:
                # Somebody else was faster with the same key: his job is the answer.
                answers[index] = await self._known(submissions[index], jobs[index])
        return [answer for answer in answers if answer is not None]

    async def _bear(self, jobs: list[Job], quota: Quota | None) -> list[Job | CommitStatus]:
        sticky = len(jobs) <= _STICKY_BATCH
        if quota is not None and jobs:
            sticky = sticky and await self._ledger.is_far(quota, len(jobs))
        if not sticky:
            if quota is not None:
                await self._ledger.let_pass(quota)
            return await self._store(jobs, quota)
        # The first handlers run in the same write: one commit less for each.
        written = self.executor.submit_all(jobs, quota)
        return await (written if quota is None else self._ledger.follow(quota, written))

    async def _store(self, jobs: Sequence[Job], quota: Quota | None) -> list[Job | CommitStatus]:
        """Straight into the store: they wait in the ready queue like everybody else."""
        newest = {job.blueprint: job for job in jobs}
        scenes = {name: self.context(job) for name, job in newest.items()}
        changes = [
            transitions.create(job, scenes[job.blueprint]).change(None, self._ids.new_token()) for job in jobs
        ]
        if quota is not None:
            changes = [replace(change, quota=quota) for change in changes]
        outcomes = await self._storage.commit(changes, self._settings.instance)
        for change, outcome in zip(changes, outcomes, strict=True):
            if not outcome.ok and outcome.kind not in _NOT_TAKEN:
                raise StorageError(f"job {change.job_id} was not created: {outcome.kind} {outcome.reason}")
        return [
            change.job if outcome.ok and change.job is not None else outcome.kind
            for change, outcome in zip(changes, outcomes, strict=True)
        ]

    def _must_run(self) -> None:
        if self._deaf is None:
            raise OrchestratorStopped("the orchestrator is not running; start it first")

    def _new_job(self, submission: Submission, now: datetime, trace: dict[str, str]) -> Job:
        blueprint = self.library.get(submission.blueprint)
        graph = blueprint.graph
        submission = to_storable(submission, _decode_submission, "the submission")
        try:
            attributes = checked(self.library.attributes_of(blueprint), submission.search_attributes)
        except WrongAttribute as error:
            raise BadSearchAttribute(str(error)) from None
        if not isfinite(submission.priority):
            raise NotSerializable("priority", "expected a finite number")
        key = submission.idempotency_key
        if key == "":
            raise NotSerializable("idempotency_key", "expected a non-empty str or None")
        _check_timeout("dispatch_timeout_s", submission.dispatch_timeout_s)
        _check_timeout("result_timeout_s", submission.result_timeout_s)
        return Job(
            id=self._ids.new_id(now) if key is None else keyed_id(submission.client, key),
            blueprint=graph.blueprint,
            version=graph.version,
            state=graph.start,
            created_at=now,
            updated_at=now,
            client=submission.client,
            visit=1,
            entered_at=now,
            input=submission.input,
            priority=submission.priority,
            webhook_url=self.webhook_for(submission.client, submission.webhook_url),
            search_attributes=attributes,
            tracing_context=submission.tracing_context or trace,
            body_hash="" if key is None else body_hash(submission),
            dispatch_timeout_s=submission.dispatch_timeout_s,
            result_timeout_s=submission.result_timeout_s,
        )

    async def _taken(self, jobs: Sequence[Job]) -> Collection[str]:
        """Which of these ids are there already. Only one that derives from a key can be."""
        keyed = [job.id for job in jobs if job.body_hash]
        if not keyed:
            return ()
        found = await self._storage.get(keyed)
        return {job.id for job in found if job is not None}

    async def _known(self, submission: Submission, wished: Job) -> Job | IdempotencyConflict | None:
        """What is there under the key of this submission; with another body it is a conflict."""
        (stored,) = await self._storage.get([wished.id])
        if stored is not None and stored.body_hash != wished.body_hash:
            return IdempotencyConflict(stored.id, submission.idempotency_key or "")
        return stored

    async def get(self, job_id: str) -> Job:
        """The job as a stranger may see it, or JobNotFound."""
        (job,) = await self._storage.get([job_id])
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def wait(self, job_id: str, timeout_s: float | None = None) -> Job:
        """The job once it has settled, or as it is when the time is up."""
        return await self._waiting.one(job_id, timeout_s)

    async def wait_any(
        self, job_ids: Sequence[str], timeout_s: float, linger_s: float = 0.0, owner: str | None = None
    ) -> WaitResult:
        """Those of the jobs that have settled, as soon as there is one (and `linger_s` later), or none in time.

        IdGenerator that name no job, or where an owner is named none of his, are told apart and not waited for.
        """
        return await self._waiting.any(job_ids, timeout_s, linger_s, owner)

    async def cancel(self, job_id: str, reason: str = "", by: AuditedAction | None = None) -> Job:
        """Ask for a stop; JobAlreadyTerminal when it is too late. Twice is fine."""
        reason = to_storable_text(reason, "reason")
        return await self.signal(
            job_id, lambda job, tasks, context: signals.request_cancel(job, tasks, context, reason), by=by
        )

    async def approve(
        self,
        job_id: str,
        decision: str,
        comment: str = "",
        data: dict[str, Any] | None = None,
        visit: int | None = None,
        by: AuditedAction | None = None,
    ) -> Job:
        """Pass on a person's decision. The same one twice is fine; another is ApprovalConflict.

        With `visit` it is meant for the question of that visit alone, and for no later one.
        """
        decision, comment = to_storable_text(decision, "decision"), to_storable_text(comment, "comment")
        data = to_storable_dict(data, "data")

        def decide(job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
            return signals.approve(job, decision, context, comment, data, visit)

        return await self.signal(job_id, decide, by=by)

    async def release(
        self, job_id: str, data: dict[str, Any] | None = None, by: AuditedAction | None = None
    ) -> Job:
        """Let a quarantined job try again, with `data` merged into its history first."""
        data = to_storable_dict(data, "data")
        return await self.signal(
            job_id, lambda job, tasks, context: signals.release(job, context, data), by=by
        )

    async def fail(self, job_id: str, reason: str = "", by: AuditedAction | None = None) -> Job:
        """Give a quarantined job up."""
        reason = to_storable_text(reason, "reason")
        return await self.signal(
            job_id, lambda job, tasks, context: signals.fail_quarantined(job, context, reason, tasks), by=by
        )

    def approval_token(self, job: Job) -> str:
        """The token that proves to an outsider's webhook that it was asked (FENCES 18)."""
        return approval_token(self._runner.secret, job)

    # -- workers ---------------------------------------------------------------------------------

    async def deliver(self, result: TaskResult) -> ResultVerdict:
        """Take a worker's result; answered after the commit that it caused."""
        return await self.executor.deliver(result)

    # -- signals ---------------------------------------------------------------------------------

    async def signal(
        self,
        job_id: str,
        decide: Decide,
        consumes_message: str | None = None,
        by: AuditedAction | None = None,
    ) -> Job:
        """Load, decide, write; again when somebody else was faster. None decides that nothing changes."""
        self._must_run()
        for _ in range(_MAX_RACES):
            (job,), _ = await self._storage.load([job_id])
            if job is None:
                raise JobNotFound(job_id)
            tasks = await self._storage.tasks_of(job_id)
            step = decide(job, tasks, self.context(job))
            if step is None:
                if consumes_message is not None:
                    await self._consume(job_id, consumes_message)
                return await self.get(job_id)
            change = self._change(step, job, consumes_message)
            if by is not None:
                change = signed(change, by)
            (outcome,) = await self._storage.commit([change], self._settings.instance)
            if outcome.ok:
                self._call_off(tasks, change)
                return change.job if change.job is not None else job
            if outcome.kind is CommitStatus.UNSTORABLE:
                raise NotSerializable(f"job {job_id}", outcome.reason)
        raise StorageError(f"job {job_id}: lost {_MAX_RACES} races in a row")

    async def signal_tasks(self, task_ids: Sequence[str], decide: DecideTask) -> int:
        """The same for single tasks of any jobs: one load, one commit; returns how many were changed.

        Tasks of a job with ten thousand branches are looked at without their siblings.
        """
        self._must_run()
        left = list(dict.fromkeys(task_ids))
        done = 0
        for _ in range(_MAX_RACES):
            changes = await self._decide_tasks(left, decide)
            if not changes:
                return done
            outcomes = await self._storage.commit([change for _, change in changes], self._settings.instance)
            left = []
            for (task, change), outcome in zip(changes, outcomes, strict=True):
                if outcome.ok:
                    done += 1
                    self._call_off([task], change)
                elif outcome.kind is CommitStatus.STALE:
                    left.append(task.id)
        raise StorageError(f"lost {_MAX_RACES} races in a row over {left[:3]}")

    async def _decide_tasks(self, task_ids: list[str], decide: DecideTask) -> list[tuple[Task, Change]]:
        jobs, tasks = await self._load_readable(task_ids)
        changes: list[tuple[Task, Change]] = []
        for job, task in zip(jobs, tasks, strict=True):
            step = decide(job, task, self.context(job)) if job is not None and task is not None else None
            if job is not None and task is not None and step is not None:
                changes.append((task, self._change(step, job, None)))
        return changes

    async def _load_readable(self, task_ids: list[str]) -> tuple[list[Job | None], list[Task | None]]:
        """Tasks and their jobs. What nobody can read is named in the log, and keeps no other one waiting."""
        try:
            return await self._storage.load([job_id_of_task(task_id) for task_id in task_ids], task_ids)
        except msgspec.MsgspecError as error:
            if len(task_ids) == 1:
                told = {"action": "unreadable", "job_id": job_id_of_task(task_ids[0])}
                log.error("task %s cannot be read and is left alone: %s", task_ids[0], error, extra=told)
                return [None], [None]
        pairs = [await self._load_readable([task_id]) for task_id in task_ids]
        return [job for (job,), _ in pairs], [task for _, (task,) in pairs]

    async def write(self, step: TaskStep) -> bool:
        """Write a change of tasks alone; False when its fence has passed on."""
        (outcome,) = await self._storage.commit([step.change(self._ids.new_token())], self._settings.instance)
        return outcome.ok

    def _change(self, step: Step | TaskStep, job: Job, consumes_message: str | None) -> Change:
        if isinstance(step, TaskStep):
            return step.change(self._ids.new_token())
        return step.change(job, self._ids.new_token(), consumes_message=consumes_message)

    def _call_off(self, tasks: list[Task], change: Change) -> None:
        """Tell workers about attempts that this change closed. Their slots stay taken until they obey."""
        moved = {write.task.id for write in change.tasks if write.task.attempt != write.attempt}
        for task in tasks:
            if task.state in HELD_STATES and (change.drop_tasks or task.id in moved):
                self.dispatcher.cancel(task.worker_id, [task.attempt_id])

    def context(self, job: Job) -> DecisionContext:
        """What the machine may know about this moment."""
        blueprint = self.library.find(job.blueprint, job.version)
        return DecisionContext(
            now=self._clock.now(),
            graph=blueprint.graph if blueprint is not None else None,
            find_graph=self.library.newest_graph,
            settings=self._settings.machine,
            random=self._ids.random.random(),
        )

    # -- messages between jobs -------------------------------------------------------------------

    def _post(self) -> None:
        """A message was flushed: see to it soon."""
        if self._posting is None and self._deaf is not None:
            self._posting = asyncio.get_running_loop().create_task(self._post_all(), name="messages")

    async def _post_all(self) -> None:
        try:
            await self.deliver_messages()
        except (StorageOutcomeUnknown, OrchestratorStopped):
            pass  # whoever is away or stops says so itself; the messages are stored
        except Exception:
            log.exception("delivering messages failed; the rescuer tries again", extra={"action": "messages"})
        finally:
            self._posting = None

    async def deliver_messages(self) -> int:
        """Acts on all stored messages; returns on how many. Each is removed by the commit that it causes.

        A message that cannot be acted on stays stored and is skipped until the next call.
        """
        acted = 0
        failed: set[str] = set()
        while True:
            # The store lists the oldest first: ask for as many more as are to be skipped.
            found = await self._storage.messages(_MESSAGES + len(failed))
            messages = [message for message in found if message.id not in failed]
            if not messages:
                return acted
            for message in messages:
                try:
                    await self._act_on(message)
                    acted += 1
                except (StorageOutcomeUnknown, OrchestratorStopped):
                    raise
                except Exception:  # one unreadable record must not hold up the others
                    failed.add(message.id)
                    fields = {"action": "messages", "job_id": message.to_job}
                    log.exception("a message for job %s cannot be acted on", message.to_job, extra=fields)

    async def _act_on(self, message: JobMessage) -> None:
        def decide(job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
            if message.kind is JobMessageKind.CHILD_ENDED:
                return signals.child_ended(job, message, context)
            return (
                None
                if job.status.terminal
                else signals.request_cancel(job, tasks, context, "parent cancelled")
            )

        try:
            await self.signal(message.to_job, decide, consumes_message=message.id)
        except JobNotFound:
            await self._consume(message.to_job, message.id)

    async def _consume(self, job_id: str, message_id: str) -> None:
        change = Change(job_id=job_id, token=self._ids.new_token(), consumes_message=message_id)
        await self._storage.commit([change], self._settings.instance)

    # -- words for workers -----------------------------------------------------------------------

    def later(self, work: Coroutine[Any, Any, None], action: str) -> None:
        """Do this soon, in the background. Whatever is lost by a failure is said again by a heartbeat or a chore."""
        task = asyncio.get_running_loop().create_task(self._quietly(work, action), name=action)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _quietly(self, work: Coroutine[Any, Any, None], action: str) -> None:
        try:
            await work
        except (StorageOutcomeUnknown, OrchestratorStopped):
            pass  # they say so themselves
        except Exception:
            log.exception("%s failed", action, extra={"action": action})

    def _send_cancels(self, worker_id: str) -> None:
        if self.dispatcher.find(worker_id) is not None:
            self.later(self._send_cancels_to(worker_id), "cancels")

    async def _send_cancels_to(self, worker_id: str) -> None:
        held = await self._storage.held_by(worker_id)
        wanted = [task.attempt_id for task in held if task.cancel_requested]
        if wanted:
            self.dispatcher.cancel(worker_id, wanted)


def signed(change: Change, deed: AuditedAction) -> Change:
    """The change with the name of whoever wanted it, and the record of that."""
    events = tuple(
        msgspec.structs.replace(event, actor=deed.actor) if event.type in _BY_HAND else event
        for event in change.events
    )
    return msgspec.structs.replace(change, events=events, records=(*change.records, deed.record))


def _check_timeout(name: str, seconds: float | None) -> None:
    if seconds is not None and not 0 < seconds < inf:
        raise NotSerializable(name, "expected a finite number above 0")


def keyed_id(client: str, key: str) -> str:
    """The id that follows from a client's key. A key that begins with its time gives an id that does.

    IdGenerator that sort by time are what the b-trees of store and history like best; a key of the layout of
    UUID version 7 brings the time along, any other one does not.
    """
    derived = derived_id("job", client, key)
    return key[:13].lower() + derived[13:] if _TIMED.match(key) else derived


def body_hash(submission: Submission) -> str:
    """What must be the same when a key is used again: what is asked for, not how it travelled."""
    asked = replace(submission, tracing_context={}) if submission.tracing_context else submission
    # Also what is left out of a record as its default: so it was hashed from the first day, and hashes are stored.
    return sha256(_in_order(asdict(asked))).hexdigest()[:32]
