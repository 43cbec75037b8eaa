"""Catalogue: every metric that there is, by name, with its meaning. docs/howto/observe.md tells the same.

The names of the source documents are kept where the thing exists here; ours follow the same form.
"""

from .meters import Meters

#: From a hand-over at once to a day in line.
_WAITS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
#: One write, in memory or on a slow disk far away.
_FLUSHES_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
#: From a loop that is free to one that was stopped.
_LAGS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The metrics as attributes, so that a mistyped one is an error and not a silent nothing."""

    def __init__(self) -> None:
        self.all = Meters()
        self._jobs()
        self._tasks()
        self._house()
        self._doors()
        self._parts()

    def _jobs(self) -> None:
        counter, histogram = self.all.counter, self.all.histogram
        self.jobs = counter("orchestrator_jobs_total", "Jobs accepted, children among them.", "blueprint")
        self.jobs_failed = counter(
            "orchestrator_jobs_failed_total", "Jobs that ended as failed.", "blueprint"
        )
        self.jobs_ended = counter(
            "orchestrator_jobs_ended_total",
            "Jobs that settled: finished, failed, cancelled, quarantined.",
            "blueprint",
            "status",
        )
        self.job_duration = histogram(
            "orchestrator_job_duration_seconds",
            "From the acceptance of a job to its end.",
            "blueprint",
            "status",
            bounds=_WAITS_S,
        )
        self.timeouts = counter(
            "orchestrator_jobs_timeouts_total",
            "Tasks that ran out of time: dispatch_timeout, result_timeout, attempt_timeout.",
            "blueprint",
            "type",
        )
        self.handler_failures = counter(
            "orchestrator_handler_failures_total", "Runs of a handler that raised.", "blueprint", "state"
        )
        self.too_deep = counter(
            "orchestrator_holarchy_depth_exceeded_total", "Children refused: too many levels.", "blueprint"
        )

    def _tasks(self) -> None:
        counter, gauge, histogram = self.all.counter, self.all.gauge, self.all.histogram
        self.schedule_to_start = histogram(
            "orchestrator_schedule_to_start_seconds",
            "From the moment that a task may run until it is handed to a worker.",
            "queue",
            bounds=_WAITS_S,
        )
        self.attempts = counter(
            "orchestrator_attempts_total",
            "Attempts that ended: success, failure, another status, lost, undelivered, timed_out.",
            "task",
            "outcome",
        )
        self.attempt_duration = histogram(
            "orchestrator_attempt_duration_seconds",
            "From the start of an attempt to its result.",
            "task",
            bounds=_WAITS_S,
        )
        self.retries = counter("orchestrator_task_retries_total", "Attempts that were tried again.", "task")
        self.hot = counter(
            "orchestrator_tasks_hot_dispatched_total",
            "Tasks handed to a worker that was warm for them; kind: skill or model.",
            "blueprint",
            "kind",
        )
        self.ignored = counter(
            "orchestrator_tasks_ignored_total", "Results that were not followed.", "blueprint", "reason"
        )
        self.queue_length = gauge("orchestrator_task_queue_length", "Tasks that wait for a worker.", "queue")
        self.oldest = gauge(
            "orchestrator_task_queue_oldest_seconds", "Age of the task that waits longest.", "queue"
        )

    def _house(self) -> None:
        counter, gauge, histogram = self.all.counter, self.all.gauge, self.all.histogram
        self.workers = gauge("orchestrator_active_workers", "Workers whose lease holds, at any instance.")
        self.connected = gauge("orchestrator_connected_workers", "Workers connected to this instance.")
        self.busy = gauge("orchestrator_running_attempts", "Attempts in the hands of workers connected here.")
        self.lag = histogram(
            "orchestrator_loop_lag_seconds",
            "How late the loop comes, looked at every second.",
            bounds=_LAGS_S,
        )
        self.flush = histogram(
            "orchestrator_store_flush_seconds", "From a commit to its answer.", bounds=_FLUSHES_S
        )
        self.store_up = gauge("orchestrator_store_up", "1 while the store answers.")
        self.store_errors = counter("orchestrator_store_errors_total", "Commits that the store did not take.")
        self.history_up = gauge(
            "orchestrator_history_up", "1 while the history answers. None: there is none."
        )
        self.history_entries = gauge(
            "orchestrator_history_lag_entries", "Commits that history lacks, counted up to 1000."
        )
        self.history_lag = gauge("orchestrator_history_lag_seconds", "Age of the oldest commit it lacks.")
        self.state = gauge("orchestrator_system_state", "1 for the state that the system is in.", "state")
        self.info = gauge("orchestrator_info", "Always 1; what runs here.", "version", "instance", "store")

    def _doors(self) -> None:
        counter = self.all.counter
        self.requests = counter(
            "orchestrator_http_requests_total", "Requests answered.", "method", "route", "status"
        )
        self.rate_limited = counter(
            "orchestrator_ratelimit_blocked_total", "Requests over a rate limit.", "identifier", "path"
        )
        self.auth_failures = counter(
            "orchestrator_security_auth_failures_total", "Missing or wrong credentials.", "door", "code"
        )
        self.identity_mismatch = counter(
            "orchestrator_security_identity_mismatch_total",
            "Valid credentials used for something that is not theirs.",
            "door",
            "code",
        )
        self.signature_invalid = counter(
            "orchestrator_signature_invalid_total", "Messages of workers with a wrong signature."
        )
        self.request_errors = counter(
            "orchestrator_middleware_errors_total", "Requests that ended in an error of ours."
        )

    def _parts(self) -> None:
        counter, histogram = self.all.counter, self.all.histogram
        self.payload_operations = counter(
            "orchestrator_s3_operations_total", "Operations on the payload store.", "operation", "outcome"
        )
        self.payload_duration = histogram(
            "orchestrator_s3_operation_duration_seconds",
            "How long they took.",
            "operation",
            bounds=_WAITS_S,
        )
        self.scheduled = counter(
            "orchestrator_scheduler_jobs_triggered_total", "Jobs that a schedule started.", "blueprint"
        )
        self.webhooks = counter(
            "orchestrator_webhook_deliveries_total", "Tries to deliver a webhook.", "outcome"
        )
