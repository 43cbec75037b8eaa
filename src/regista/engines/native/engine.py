"""NativeEngine: jobs, run by ourselves over a store."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from ...blueprint import signals
from ...blueprint.step import Scene, Step
from ...clock import Clock, Ids, derived_id
from ...dispatch.dispatcher import Dispatcher
from ...errors import IdempotencyConflict, JobNotFound, StorageError, StorageFailed
from ...model import HELD_STATES, Change, Job, Message, MessageKind, Task, TaskResult
from ...storage.base import StorageBackend
from ..base import Submission, Verdict
from .effects import Effects
from .executor import JobExecutor, Settings
from .library import Library
from .results import TaskStep
from .runner import Runner, approval_token

log = logging.getLogger("regista.engine")

#: Losing a race this often means that something is wrong, not that somebody was faster.
_MAX_RACES = 1000
_encode = msgspec.msgpack.Encoder().encode
_plain_order = msgspec.msgpack.Encoder(order="sorted").encode
_decode_data = msgspec.msgpack.Decoder(dict[str, Any]).decode

Decide = Callable[[Job, list[Task], Scene], Step | TaskStep | None]


class NativeEngine:
    """Accepts jobs and signals, and has the executor run them."""

    def __init__(
        self,
        storage: StorageBackend,
        library: Library,
        runner: Runner,
        dispatcher: Dispatcher,
        clock: Clock,
        ids: Ids,
        settings: Settings,
    ) -> None:
        self.library = library
        self.dispatcher = dispatcher
        self.executor = JobExecutor(storage, library, runner, dispatcher, clock, ids, settings)
        self.effects = Effects(self.executor, dispatcher)
        self.effects.on_message = self._post
        self.effects.on_cancel = self._send_cancels
        self._storage = storage
        self._runner = runner
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._deaf: Callable[[], None] | None = None
        self._posting: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Hear the store, say what can be run here, and pick up what waits."""
        if self._deaf is not None:
            return
        self._runner.secret = self._runner.secret or await self._storage.secret("approval")
        self._deaf = self._storage.listen(self.effects.hear)
        await self.attend()
        self.executor.wake()
        self._post()

    async def stop(self) -> None:
        """Finish what is decided; the rest is stored and goes on with the next start."""
        if self._deaf is None:
            return
        self._deaf()
        self._deaf = None
        await self.executor.stop()
        await self.dispatcher.stop()
        for task in (*self._background, *([self._posting] if self._posting else [])):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def attend(self) -> None:
        """Say which versions this instance can run, for three beats."""
        await self._storage.attend(self._settings.instance, self.library.versions(), self._settings.lease_s)

    # -- clients ---------------------------------------------------------------------------------

    async def submit(self, submission: Submission) -> Job:
        """Accept a job; durable when this returns. Its first handler may have run by then."""
        wished = self._new_job(submission)
        job = await self.executor.submit(wished, sticky=True)
        if submission.idempotency_key is None:
            return job
        return await self._admit(submission, wished, job)

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Job | IdempotencyConflict]:
        """Accept several jobs with one flush; the answers stand in the order asked (FENCES 17).

        All are checked before any is written. A key that was used with another body is refused in its
        own place, and hinders nobody else.
        """
        jobs = [self._new_job(submission) for submission in submissions]
        born = await asyncio.gather(*[self.executor.submit(job, sticky=False) for job in jobs])
        answers: list[Job | IdempotencyConflict] = []
        for submission, wished, job in zip(submissions, jobs, born, strict=True):
            try:
                keyed = submission.idempotency_key is not None
                answers.append(await self._admit(submission, wished, job) if keyed else job)
            except IdempotencyConflict as conflict:
                answers.append(conflict)
        return answers

    def _new_job(self, submission: Submission) -> Job:
        graph = self.library.get(submission.blueprint).graph
        key = submission.idempotency_key
        now = self._clock.now()
        return Job(
            id=self._ids.new() if key is None else derived_id("job", submission.client, key),
            blueprint=graph.blueprint,
            version=graph.version,
            state=graph.start,
            created_at=now,
            updated_at=now,
            client=submission.client,
            input=plain(submission.input),
            priority=submission.priority,
            dispatch_timeout_s=submission.dispatch_timeout_s,
            result_timeout_s=submission.result_timeout_s,
            webhook_url=submission.webhook_url,
            search_attributes=plain(submission.search_attributes),
            tracing_context=submission.tracing_context,
            body_hash="" if key is None else sha256(_plain_order(submission)).hexdigest()[:32],
        )

    async def _admit(self, submission: Submission, wished: Job, job: Job) -> Job:
        """A replay returns the job that is there; another body under the same key is refused."""
        stored = await self._storage.get(wished.id)
        if stored is None:
            return job
        if stored.body_hash != wished.body_hash:
            raise IdempotencyConflict(stored.id, submission.idempotency_key or "")
        return stored

    async def get(self, job_id: str) -> Job:
        """The job as a stranger may see it, or JobNotFound."""
        job = await self._storage.get(job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def wait(self, job_id: str, timeout_s: float | None = None) -> Job:
        """The job once it has settled, or as it is when the time is up."""
        if timeout_s is not None:
            return await self._wait_until(job_id, self._clock.elapsed() + timeout_s)
        while True:
            waiter = self.effects.changed(job_id)
            try:
                job = await self.get(job_id)
                if job.status.settled:
                    return job
                await waiter
            finally:
                self.effects.leave(job_id, waiter)

    async def _wait_until(self, job_id: str, give_up: float) -> Job:
        while True:
            waiter = self.effects.changed(job_id)
            try:
                job = await self.get(job_id)
                left = give_up - self._clock.elapsed()
                if job.status.settled or left <= 0:
                    return job
                await asyncio.wait([waiter], timeout=left)
            finally:
                self.effects.leave(job_id, waiter)

    async def cancel(self, job_id: str, reason: str = "") -> Job:
        """Ask for a stop; JobAlreadyTerminal when it is too late. Twice is fine."""
        return await self.signal(
            job_id, lambda job, tasks, scene: signals.request_cancel(job, tasks, scene, reason)
        )

    async def approve(
        self, job_id: str, decision: str, comment: str = "", data: dict[str, Any] | None = None
    ) -> Job:
        """Pass on a person's decision. The same one twice is fine; another is ApprovalConflict."""
        data = plain(data)
        return await self.signal(
            job_id, lambda job, tasks, scene: signals.approve(job, decision, scene, comment, data)
        )

    async def release(self, job_id: str, data: dict[str, Any] | None = None) -> Job:
        """Let a quarantined job try again, with `data` merged into its history first."""
        data = plain(data)
        return await self.signal(job_id, lambda job, tasks, scene: signals.release(job, scene, data))

    async def fail(self, job_id: str, reason: str = "") -> Job:
        """Give a quarantined job up."""
        return await self.signal(job_id, lambda job, tasks, scene: signals.fail_by_hand(job, scene, reason))

    def approval_token(self, job: Job) -> str:
        """The token that proves to an outsider's webhook that it was asked (FENCES 18)."""
        return approval_token(self._runner.secret, job)

    # -- workers ---------------------------------------------------------------------------------

    async def deliver(self, result: TaskResult) -> Verdict:
        """Take a worker's result; answered after the commit that it caused."""
        return await self.executor.deliver(result)

    # -- signals ---------------------------------------------------------------------------------

    async def signal(self, job_id: str, decide: Decide, consumes: str | None = None) -> Job:
        """Load, decide, write; again when somebody else was faster. None decides that nothing changes."""
        for _ in range(_MAX_RACES):
            (job,), _ = await self._storage.load([job_id])
            if job is None:
                raise JobNotFound(job_id)
            tasks = await self._storage.tasks_of(job_id)
            step = decide(job, tasks, self.scene(job))
            if step is None:
                if consumes is not None:
                    await self._consume(job_id, consumes)
                return await self.get(job_id)
            change = self._change(step, job, consumes)
            (outcome,) = await self._storage.commit([change], self._settings.instance)
            if outcome.ok:
                self._call_off(tasks, change)
                return change.job if change.job is not None else job
        raise StorageError(f"job {job_id}: lost {_MAX_RACES} races in a row")

    async def write(self, step: TaskStep) -> bool:
        """Write a change of tasks alone; False when its fence has passed on."""
        (outcome,) = await self._storage.commit([step.change(self._ids.token())], self._settings.instance)
        return outcome.ok

    def _change(self, step: Step | TaskStep, job: Job, consumes: str | None) -> Change:
        if isinstance(step, TaskStep):
            return step.change(self._ids.token())
        return step.change(job, self._ids.token(), consumes=consumes)

    def _call_off(self, tasks: list[Task], change: Change) -> None:
        """Tell workers about attempts that this change closed. Their slots stay taken until they obey."""
        moved = {write.task.id for write in change.tasks if write.task.attempt != write.attempt}
        for task in tasks:
            if task.state in HELD_STATES and (change.drop_tasks or task.id in moved):
                self.dispatcher.cancel(task.worker_id, [task.attempt_id])

    def scene(self, job: Job) -> Scene:
        """What the machine may know about this moment."""
        blueprint = self.library.find(job.blueprint, job.version)
        return Scene(
            now=self._clock.now(),
            graph=blueprint.graph if blueprint is not None else None,
            find=self.library.newest_graph,
            rules=self._settings.rules,
            chance=self._ids.chance.random(),
        )

    # -- messages between jobs -------------------------------------------------------------------

    def _post(self) -> None:
        """A message was flushed: see to it soon."""
        if self._posting is None and self._deaf is not None:
            self._posting = asyncio.get_running_loop().create_task(self._post_all(), name="messages")

    async def _post_all(self) -> None:
        try:
            while await self.deliver_messages():
                pass
        except StorageFailed:
            pass
        except Exception:
            log.exception("delivering messages failed; the rescuer tries again", extra={"action": "messages"})
        finally:
            self._posting = None

    async def deliver_messages(self, limit: int = 100) -> int:
        """Act on stored messages; returns how many there were. Each is gone with the commit it caused."""
        messages = await self._storage.messages(limit)
        for message in messages:
            await self._act_on(message)
        return len(messages)

    async def _act_on(self, message: Message) -> None:
        def decide(job: Job, tasks: list[Task], scene: Scene) -> Step | None:
            if message.kind is MessageKind.CHILD_ENDED:
                return signals.child_ended(job, message, scene)
            return (
                None if job.status.terminal else signals.request_cancel(job, tasks, scene, "parent cancelled")
            )

        try:
            await self.signal(message.to_job, decide, consumes=message.id)
        except JobNotFound:
            await self._consume(message.to_job, message.id)

    async def _consume(self, job_id: str, message_id: str) -> None:
        change = Change(job_id=job_id, token=self._ids.token(), consumes=message_id)
        await self._storage.commit([change], self._settings.instance)

    # -- cancels ---------------------------------------------------------------------------------

    def _send_cancels(self, worker_id: str) -> None:
        if self.dispatcher.find(worker_id) is not None:
            task = asyncio.get_running_loop().create_task(self._send_cancels_to(worker_id), name="cancels")
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _send_cancels_to(self, worker_id: str) -> None:
        held = await self._storage.held_by(worker_id)
        wanted = [task.attempt_id for task in held if task.cancel_requested]
        if wanted:
            self.dispatcher.cancel(worker_id, wanted)


def plain(data: dict[str, Any] | None) -> dict[str, Any]:
    """The data as a store keeps it, and nobody else's; ValueError when no store could."""
    if not data:
        return {}
    try:
        return _decode_data(_encode(data))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"expected a dict of plain data: {error}") from error
