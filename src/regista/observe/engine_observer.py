"""EngineTelemetry: counts and traces what an engine does. It implements `engines.base.EngineObserver`."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..clock import Clock
from ..model import Change, CommitOutcome, Job, ResultVerdict, Task, Worker
from .commit_metrics import CommitMetrics
from .metrics import Metrics
from .spans import SpanObserver

if TYPE_CHECKING:
    from .tracing import HandlerSpan

log = logging.getLogger("regista.observe")


class EngineTelemetry:
    """No method raises: what is written is written, and its caller must be answered, counted or not."""

    def __init__(
        self,
        metrics: Metrics,
        commits: CommitMetrics,
        spans: SpanObserver | None,
        handler_span: "Callable[[Job], HandlerSpan | None]",
        clock: Clock,
    ) -> None:
        self._metrics = metrics
        self._commits = commits
        self._spans = spans
        self._handler_span = handler_span
        self._clock = clock

    def loaded(self, jobs: Sequence[Job | None]) -> None:
        """Jobs were loaded for a decision."""
        self._commits.loaded(jobs)

    def committed(self, changes: Sequence[Change], outcomes: Sequence[CommitOutcome], took_s: float) -> None:
        """A commit was flushed."""
        try:
            self._metrics.flush.observe(took_s)
            now = self._clock.now()
            self._commits.committed(changes, outcomes, now)
            if self._spans is not None:
                self._spans.committed(changes, outcomes, now)
        except Exception:
            log.exception("counting a commit failed", extra={"action": "telemetry"})

    def commit_failed(self) -> None:
        """A commit raised: its outcome is unknown."""
        self._metrics.store_errors.add()

    def claimed(self, worker: Worker, tasks: Sequence[Task]) -> None:
        """A worker was given these tasks, which had waited."""
        try:
            self._commits.claimed(worker, tasks, self._clock.now())
        except Exception:
            log.exception("counting claimed tasks failed", extra={"action": "telemetry"})

    def result_ignored(self, job: Job | None, verdict: ResultVerdict) -> None:
        """A worker's result was not followed."""
        self._metrics.ignored.add(("" if job is None else job.blueprint, verdict.value))

    def handler_span(self, job: Job) -> "HandlerSpan | None":
        """Starts the span of a handler's run; None when the job is not traced."""
        return self._handler_span(job)
