"""Submissions: the one way to create jobs."""

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from hashlib import sha256
from math import inf, isfinite

import msgspec
from msgspec.structs import asdict, replace

from ...blueprint.registry import BlueprintRegistry
from ...clock import Clock, IdGenerator, derived_id
from ...errors import (
    BadSearchAttribute,
    BlueprintNotFound,
    IdempotencyConflict,
    NotSerializable,
    RegistaError,
    StorageError,
    WebhookRefused,
)
from ...machine import transitions
from ...model import CommitStatus, Job, Quota
from ...model.attributes import WrongAttribute, checked
from ...serialization import to_storable
from ...storage.base import StorageBackend
from ...trace_context import current_context
from ..base import MonthlyQuota, Submission
from ..quotas import quota_exceeded
from .contexts import ContextFactory
from .executor import JobExecutor
from .repository import JobRepository

#: A batch up to this size runs its first handlers in the write that creates the jobs; a larger one is only stored.
MAX_BATCH_RUN_NOW = 128
#: Why a job was not created, where that is an answer and not an error.
_NOT_CREATED = frozenset({CommitStatus.EXISTS, CommitStatus.OVER_QUOTA})
#: A key with the layout of UUID version 7: 48 bits of time come first.
_TIME_ORDERED = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}\Z"
)
_encode_sorted = msgspec.msgpack.Encoder(order="sorted").encode
_decode_submission = msgspec.msgpack.Decoder(Submission).decode

#: The URL that a job's webhooks go to, by its client and the URL that it asks for. Raises WebhookRefused.
WebhookUrlFor = Callable[[str, str | None], str | None]


class Submissions:
    """Checks submissions, answers repeated idempotency keys from the store, and creates the other jobs."""

    def __init__(
        self,
        storage: StorageBackend,
        repository: JobRepository,
        registry: BlueprintRegistry,
        executor: JobExecutor,
        contexts: ContextFactory,
        clock: Clock,
        ids: IdGenerator,
        instance: str,
        webhook_url_for: WebhookUrlFor,
    ) -> None:
        self._storage = storage
        self._repository = repository
        self._registry = registry
        self._executor = executor
        self._contexts = contexts
        self._clock = clock
        self._ids = ids
        self._instance = instance
        self._webhook_url_for = webhook_url_for

    async def submit(
        self,
        submissions: Sequence[Submission],
        quota: MonthlyQuota | None = None,
        *,
        check_all: bool = False,
    ) -> list[Job | RegistaError]:
        """See `Engine.submit`."""
        now, trace = self._clock.now(), current_context()
        answers: list[Job | RegistaError | None] = [None] * len(submissions)
        wanted: list[tuple[int, Job]] = []
        for index, submission in enumerate(submissions):
            try:
                wanted.append((index, self._new_job(submission, now, trace)))
            except (NotSerializable, BadSearchAttribute, BlueprintNotFound, WebhookRefused) as refusal:
                if check_all:
                    raise
                answers[index] = refusal
        existing = await self._existing_ids([job for _, job in wanted])
        new: list[tuple[int, Job]] = []
        for index, job in wanted:
            answer = await self._existing_job(submissions[index], job) if job.id in existing else None
            if answer is None:
                new.append((index, job))
            answers[index] = answer
        created = await self._create_jobs([job for _, job in new], None if quota is None else quota.quota)
        exceeded = None
        if quota is not None and CommitStatus.OVER_QUOTA in created:
            exceeded = await quota_exceeded(self._storage, quota, self._clock.now())
        for (index, job), outcome in zip(new, created, strict=True):
            if outcome is CommitStatus.OVER_QUOTA:
                answers[index] = exceeded
            elif isinstance(outcome, Job):
                answers[index] = outcome
            else:  # the same key was used at the same time, and the other one was first
                answers[index] = await self._existing_job(submissions[index], job)
        return [answer for answer in answers if answer is not None]

    async def _create_jobs(self, jobs: list[Job], quota: Quota | None) -> list[Job | CommitStatus]:
        """Creates jobs with one flush. With a quota no handler runs before its job is stored."""
        if quota is None and len(jobs) <= MAX_BATCH_RUN_NOW:
            return list(await asyncio.gather(*self._executor.submit(jobs)))
        changes = []
        contexts = {job.blueprint: self._contexts.new(job) for job in jobs}
        for job in jobs:
            step = transitions.create(job, contexts[job.blueprint])
            changes.append(step.change(None, self._ids.new_token(), quota=quota))
        outcomes = await self._repository.commit(changes, self._instance)
        answers: list[Job | CommitStatus] = []
        for change, outcome in zip(changes, outcomes, strict=True):
            if not outcome.ok and outcome.kind not in _NOT_CREATED:
                raise StorageError(f"job {change.job_id} was not created: {outcome.kind} {outcome.reason}")
            answers.append(change.job if outcome.ok and change.job is not None else outcome.kind)
        return answers

    def _new_job(self, submission: Submission, now: datetime, trace: dict[str, str]) -> Job:
        blueprint = self._registry.get(submission.blueprint)
        graph = blueprint.graph
        submission = to_storable(submission, _decode_submission, "the submission")
        try:
            attributes = checked(self._registry.attributes_of(blueprint), submission.search_attributes)
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
            id=self._ids.new_id(now) if key is None else job_id_for_key(submission.client, key),
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
            webhook_url=self._webhook_url_for(submission.client, submission.webhook_url),
            search_attributes=attributes,
            tracing_context=submission.tracing_context or trace,
            body_hash="" if key is None else body_hash(submission),
            dispatch_timeout_s=submission.dispatch_timeout_s,
            result_timeout_s=submission.result_timeout_s,
        )

    async def _existing_ids(self, jobs: Sequence[Job]) -> Collection[str]:
        """Ids of these jobs that are stored already. Only an id that derives from a key can be."""
        keyed = [job.id for job in jobs if job.body_hash]
        if not keyed:
            return ()
        return {job.id for job in await self._repository.get(keyed) if job is not None}

    async def _existing_job(self, submission: Submission, wanted: Job) -> Job | IdempotencyConflict | None:
        """The stored job of this submission's key; a conflict if it was created with another body."""
        (stored,) = await self._repository.get([wanted.id])
        if stored is not None and stored.body_hash != wanted.body_hash:
            return IdempotencyConflict(stored.id, submission.idempotency_key or "")
        return stored


def _check_timeout(name: str, seconds: float | None) -> None:
    if seconds is not None and not 0 < seconds < inf:
        raise NotSerializable(name, "expected a finite number above 0")


def job_id_for_key(client: str, key: str) -> str:
    """The job id that derives from a client's idempotency key.

    Ids that sort by time keep the newest rows of a b-tree together. A key with the layout of UUID version 7 begins
    with its time, and so does the id of its job.
    """
    derived = derived_id("job", client, key)
    return key[:13].lower() + derived[13:] if _TIME_ORDERED.match(key) else derived


def body_hash(submission: Submission) -> str:
    """Hash of everything that must be equal when an idempotency key is used again.

    Hashes are stored: they cover all fields of Submission under their names, also those with default values.
    """
    compared = replace(submission, tracing_context={}) if submission.tracing_context else submission
    return sha256(_encode_sorted(asdict(compared))).hexdigest()[:32]
