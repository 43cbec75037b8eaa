"""Everything that Regista raises on purpose.

RegistaError
├── ConfigError              a setting is missing, unknown or wrong
├── BlueprintError           a script that cannot be followed
│   ├── BlueprintInvalid     it does not validate; the message names the state
│   ├── BlueprintLoadError   a file of BLUEPRINTS_DIR could not be loaded
│   ├── BlueprintNotFound    nobody registered that name
│   ├── ConditionError       a `.when(...)` that is not in the allowed grammar
│   ├── ActionError          a handler used its `actions` against the rules
│   └── GraphvizMissing      a picture was asked for, and there is no `dot`
├── JobError                 a request that does not fit the job
│   ├── JobNotFound
│   ├── JobAlreadyTerminal   finished, failed and cancelled are final
│   ├── IdempotencyConflict  the key was used with another body
│   ├── ApprovalConflict     not waiting for a person, or already decided otherwise
│   └── NotQuarantined       release and fail are for quarantined jobs
├── QuotaExceeded            the month's jobs are used up
├── OperatorsOnly            the caller is not an operator
├── ApprovalTokenWrong       the token belongs to no question of this job
├── BatchTooLarge            more than REGISTA_MAX_BATCH jobs or ids in one request
├── WorkerNotFound           no worker with that id is registered
├── PasswordsDisabled        workers authenticate by certificate only
├── LinkError                a signed link to a file that is not accepted
│   ├── LinkInvalid          the signature does not fit
│   └── LinkExpired          its time is over
├── DeliveryNotFound         no such webhook delivery is pending or given up
├── CallError                what a client met instead of an answer
│   ├── ApiError             refused, for a reason that has no class of its own here
│   └── Unreachable          no orchestrator answered in time
├── BadQuery                 a search that cannot be understood; it says where, and what was expected
├── BadSearchAttribute       a value that does not fit its declaration
├── ScheduleError            a request that does not fit a schedule
│   ├── ScheduleNotFound
│   ├── ScheduleExists       another one has that name
│   └── ScheduleInFile       schedules.toml names it, so only that file can change it
├── ScheduleInvalid          a schedule that cannot be followed
├── HistoryDisabled          the question needs a history, and none is configured
├── NotSerializable                 data that no store could keep
├── WebhookRefused           a URL that must not be told
├── PayloadError             a file or a large value could not be had
│   ├── PayloadsDisabled     no payload store is configured
│   ├── BadFileName          a name that would leave the job's own place, or that no store can keep
│   ├── FileMissing          there is no file of that name
│   ├── FileTooLarge         more than REGISTA_MAX_FILE_BYTES
│   ├── PayloadUnavailable   the payload store is away for now
│   └── IntegrityError       what was read is not what was written
├── NotReady                 not started yet, or stopping
├── OrchestratorStopped      it stops, or has stopped; ask again later
├── StorageError
│   ├── StorageOutcomeUnknown          no answer; the outcome of what was asked is unknown
│   │   ├── StorageFailed       a flush failed, and that is final
│   │   └── StorageUnavailable  the store is away for now
│   │       └── HistoryUnavailable  the history is; jobs go on
│   ├── StorageOwned         another process owns the file
│   └── SchemaError          the file was written by another version
└── TaskError                raised by a worker's function; a failure is data
    ├── TransientError       try again later
    ├── PermanentError       trying again is pointless
    └── InvalidInputError    the input itself is wrong
"""

from datetime import datetime
from typing import Any


class RegistaError(Exception):
    """The root of the tree; catch it to catch all of ours. `code` is stable and safe to compare."""

    code = "regista_error"


class ConfigError(RegistaError):
    """A setting is missing, unknown or wrong."""

    code = "config_error"

    def __init__(self, name: str, expected: str, got: object) -> None:
        super().__init__(f"{name}: expected {expected}, got {got!r}")
        self.name = name
        self.expected = expected
        self.got = got


class BlueprintError(RegistaError):
    """A blueprint that cannot be followed."""

    code = "blueprint_error"


class BlueprintInvalid(BlueprintError):
    """The blueprint does not validate. `problems` lists every reason, not only the first."""

    code = "blueprint_invalid"

    def __init__(self, blueprint: str, problems: list[str]) -> None:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        super().__init__(f"blueprint {blueprint!r} is not valid:{lines}")
        self.blueprint = blueprint
        self.problems = problems


class BlueprintLoadError(BlueprintError):
    """A file of BLUEPRINTS_DIR could not be loaded; `path` and `line` say where."""

    code = "blueprint_load_error"

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        where = path if line is None else f"{path}:{line}"
        super().__init__(f"cannot load blueprints from {where}: {reason}")
        self.path = path
        self.line = line


class BlueprintNotFound(BlueprintError):
    """No blueprint of that name is registered."""

    code = "blueprint_not_found"

    def __init__(self, name: str, known: list[str]) -> None:
        from difflib import get_close_matches  # only who mistypes pays for it

        have = ", ".join(sorted(known)) or "none"
        meant = get_close_matches(name, known, 1)
        guess = f"did you mean {meant[0]!r}? " if meant else ""
        super().__init__(f"no blueprint named {name!r}; {guess}registered: {have}")
        self.name = name


class ConditionError(BlueprintError):
    """A condition that is not in the allowed grammar."""

    code = "condition_error"


class ActionError(BlueprintError):
    """A handler used its actions against the rules."""

    code = "action_error"


class GraphvizMissing(BlueprintError):
    """Drawing a picture needs graphviz; the DOT text does not."""

    code = "graphviz_missing"

    def __init__(self, output_format: str) -> None:
        super().__init__(
            f"cannot write {output_format}: the program `dot` was not found; install graphviz, "
            "or ask for output_format='dot'"
        )
        self.output_format = output_format


class JobError(RegistaError):
    """A request that does not fit the job."""

    code = "job_error"

    def __init__(self, job_id: str, message: str) -> None:
        super().__init__(f"job {job_id}: {message}")
        self.job_id = job_id


class JobNotFound(JobError):
    """There is no such job, or it is not yours."""

    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id, "not found")


class JobAlreadyTerminal(JobError):
    """Finished, failed and cancelled are final."""

    code = "job_already_terminal"

    def __init__(self, job_id: str, status: str) -> None:
        super().__init__(job_id, f"already {status}")
        self.status = status


class IdempotencyConflict(JobError):
    """The idempotency key was used before with another body."""

    code = "idempotency_conflict"

    def __init__(self, job_id: str, key: str) -> None:
        super().__init__(job_id, f"the idempotency key {key!r} was used before with another body")
        self.key = key


class ApprovalConflict(JobError):
    """The job does not wait for this decision (any more)."""

    code = "approval_conflict"

    def __init__(self, job_id: str, status: str, message: str) -> None:
        super().__init__(job_id, f"{message} (the job is {status})")
        self.status = status


class NotQuarantined(JobError):
    """Only a quarantined job can be released or failed by hand."""

    code = "not_quarantined"

    def __init__(self, job_id: str, status: str) -> None:
        ended = status in ("finished", "failed", "cancelled")
        more = f"; `regista jobs fork {job_id}` starts a new job like it" if ended else ""
        super().__init__(job_id, f"expected a quarantined job, got one that is {status}{more}")
        self.status = status


class QuotaExceeded(RegistaError):
    """The client has used up its jobs of this month. Nothing was written. `resets_at` is when it begins anew."""

    code = "quota_exceeded"

    def __init__(self, limit: int, used: int, resets_at: datetime, retry_after_s: int) -> None:
        #: As the API says it everywhere: ISO 8601, in the zone of the orchestrator.
        self.resets_at = resets_at.isoformat().replace("+00:00", "Z")
        told = f"{used:,} of {limit:,} jobs of this month are used up; it begins anew on {self.resets_at}"
        super().__init__(told if limit else "this client may have no jobs: its monthly_attempts is 0")
        self.limit = limit
        self.used = used
        self.facts = {"limit": limit, "used": used, "resets_at": self.resets_at}
        #: Seconds until it begins anew.
        self.retry_after_s = retry_after_s


class OperatorsOnly(RegistaError):
    """The caller is not an operator; `action` completes "only an operator may …"."""

    code = "operators_only"

    def __init__(self, action: str) -> None:
        super().__init__(f"only an operator may {action}")
        self.action = action


class ApprovalTokenWrong(RegistaError):
    """The token belongs to no question of this job, or there is no such job."""

    code = "token_wrong"

    def __init__(self) -> None:
        super().__init__("this token does not belong to a question of this job")


class BatchTooLarge(RegistaError):
    """One request names too many jobs."""

    code = "batch_too_large"

    def __init__(self, unit: str, limit: int, got: int) -> None:
        super().__init__(f"expected at most {limit} {unit}, got {got}")
        self.limit = limit
        self.got = got
        self.facts = {"limit": limit}


class WorkerNotFound(RegistaError):
    """No worker with that id is registered."""

    code = "worker_not_found"

    def __init__(self, worker_id: str) -> None:
        super().__init__(f"no worker named {worker_id!r} is known here")
        self.worker_id = worker_id


class PasswordsDisabled(RegistaError):
    """Workers authenticate by certificate only, so a one-time password would be useless."""

    code = "passwords_disabled"

    def __init__(self) -> None:
        super().__init__(
            "workers authenticate by certificate only (WORKER_AUTH_MODE is mtls-only); issue a certificate instead"
        )


class LinkError(RegistaError):
    """A signed link to a file that is not accepted."""

    code = "link_error"


class LinkInvalid(LinkError):
    """The signature does not fit the link."""

    code = "link_invalid"

    def __init__(self) -> None:
        super().__init__("this link is not one of ours, or something in it was changed")


class LinkExpired(LinkError):
    """The time of the link is over."""

    code = "link_expired"

    def __init__(self) -> None:
        super().__init__("this link has expired; ask for another one")


class DeliveryNotFound(RegistaError):
    """No webhook delivery with that id is pending or given up, or it belongs to another client."""

    code = "delivery_not_found"

    def __init__(self, delivery_id: str) -> None:
        super().__init__(f"no delivery {delivery_id[:100]!r} of yours is pending or given up")
        self.delivery_id = delivery_id


class CallError(RegistaError):
    """What a client met instead of an answer."""

    code = "call_error"


class ApiError(CallError):
    """The orchestrator refused. `status` and `code` are those of its answer."""

    code = "api_error"

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{detail} ({status} {code})")
        self.status = status
        self.code = code
        self.detail = detail


class Unreachable(CallError):
    """No orchestrator answered in time. Whether the last request arrived is unknown."""

    code = "unreachable"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"no orchestrator answers at {url}: {reason}")
        self.url = url


class BadQuery(RegistaError, ValueError):
    """A search that cannot be understood. `position` counts characters from 0; `hint` may be empty."""

    code = "bad_query"

    def __init__(self, position: int, expected: str, found: str, hint: str = "") -> None:
        more = f"; {hint}" if hint else ""
        super().__init__(f"query, at {position}: expected {expected}, got {found}{more}")
        self.facts: dict[str, Any] = {
            "position": position,
            "expected": expected,
            "found": found,
            "hint": hint,
        }


class BadSearchAttribute(RegistaError, ValueError):
    """A search attribute that is not declared, or a value that does not fit its type. Nothing was written."""

    code = "bad_search_attribute"


class ScheduleError(RegistaError):
    """A request that does not fit a schedule. `name` is the schedule's."""

    code = "schedule_error"

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class ScheduleInvalid(RegistaError, ValueError):
    """A schedule that cannot be followed. `member` is what is wrong about it; empty: what is missing."""

    code = "schedule_invalid"

    def __init__(self, member: str, expected: str, got: object, why: str = "") -> None:
        where = f"{member}: " if member else ""
        super().__init__(f"{where}expected {expected}, got {got!r}{f' ({why})' if why else ''}")
        self.member = member
        self.expected = expected
        self.got = got
        self.why = why


class ScheduleNotFound(ScheduleError):
    """No schedule of that name."""

    code = "schedule_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(
            name, f"no schedule named {name!r}; `regista schedules list` names those that are there"
        )


class ScheduleExists(ScheduleError):
    """Another schedule has that name."""

    code = "schedule_exists"

    def __init__(self, name: str) -> None:
        super().__init__(
            name, f"a schedule named {name!r} is there already; delete it first, or choose another name"
        )


class ScheduleInFile(ScheduleError):
    """The schedule stands in schedules.toml, so only that file can take it away."""

    code = "schedule_in_file"

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{name!r} stands in schedules.toml: take it out there, or pause it")


class HistoryDisabled(RegistaError):
    """Only a history can answer this, and this orchestrator has none."""

    code = "history_disabled"

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "no history is configured; HISTORY_DATABASE_URI names one, which several orchestrators can share only in "
            "PostgreSQL. Without it jobs cannot be listed, counted or exported; `regista jobs show` and `watch` work"
        )


class NotSerializable(RegistaError, ValueError):
    """Data that no store could keep: not plain, of the wrong type, or too much of it. Nothing was written."""

    code = "not_serializable"

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(
            f"{what}: expected plain data (dict with str keys, list, str, int, float, bool, None, datetime): {problem}"
        )
        self.what = what


class WebhookRefused(RegistaError):
    """A URL that must not be told: no http, no host, or an address that is not public and not allowed."""

    code = "webhook_refused"


class PayloadError(RegistaError):
    """A file or a large value could not be had, or not be kept."""

    code = "payload_error"
    #: Trying again is pointless.
    permanent = True


class PayloadsDisabled(PayloadError):
    """Files were asked for, and no payload store is configured."""

    code = "payloads_disabled"

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message or "no payload store is configured; REGISTA_PAYLOADS (file:PATH, s3://BUCKET) names one"
        )


class BadFileName(PayloadError, ValueError):
    """The name of a file that would lead out of the job's own place, or that no store can keep."""

    code = "bad_file_name"

    def __init__(self, name: object, problem: str) -> None:
        super().__init__(
            f"expected the name of a file of this job, like frames/001.png, got {name!r}: {problem}"
        )
        self.name = name


class FileMissing(PayloadError):
    """There is no file of that name."""

    code = "file_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no file {name!r}")
        self.name = name


class FileTooLarge(PayloadError):
    """The file is larger than this orchestrator takes; nothing of it is kept."""

    code = "file_too_large"

    def __init__(self, name: str, most: int) -> None:
        super().__init__(f"file {name!r}: expected at most {most:,} bytes (REGISTA_MAX_FILE_BYTES), got more")
        self.name = name


class PayloadUnavailable(PayloadError):
    """The payload store is away, refuses us, or is too slow for now."""

    code = "payloads_unavailable"
    permanent = False


class IntegrityError(PayloadError):
    """What was read is not what was written: its checksum is another one, or it is gone."""

    code = "integrity_error"

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(f"{path}: expected the value with the checksum sha256:{expected}, found {found}")
        self.path = path


class NotReady(RegistaError):
    """The orchestrator has not started yet, or stops."""

    code = "not_ready"

    def __init__(self) -> None:
        super().__init__("the orchestrator has not started yet, or stops")


class OrchestratorStopped(RegistaError):
    """It stops, or has not been started. Nothing is known to be written; ask again, with the same key."""

    code = "stopped"

    def __init__(self, message: str = "the orchestrator stops; ask again") -> None:
        super().__init__(message)


class StorageError(RegistaError):
    """The store could not do what was asked."""

    code = "storage_error"


class StorageOutcomeUnknown(StorageError):
    """The store did not answer. Whether the write arrived is unknown."""

    code = "storage_away"


class StorageFailed(StorageOutcomeUnknown):
    """A flush failed, and that is final: whether the write survived is unknown until a restart."""

    code = "storage_failed"


class StorageUnavailable(StorageOutcomeUnknown):
    """The store is away, or too slow, for now. Whether the write arrived is unknown; ask again, with the same key."""

    code = "storage_unavailable"


class HistoryUnavailable(StorageUnavailable):
    """The history is away, or too slow, for now. Jobs go on without it, and what happens is recorded later."""

    code = "history_unavailable"


class StorageOwned(StorageError):
    """Another process owns the file."""

    code = "storage_owned"


class SchemaError(StorageError):
    """The file was written by a newer version, or is not ours."""

    code = "schema_error"


class TaskError(RegistaError):
    """A worker's function failed. Raise one of the three below to say how."""

    code = "TRANSIENT_ERROR"

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        self.details = details


class TransientError(TaskError):
    """Worth trying again: a network hiccup, a busy service."""


class PermanentError(TaskError):
    """Trying again is pointless: a broken file, a missing feature."""

    code = "PERMANENT_ERROR"


class InvalidInputError(TaskError):
    """The input itself is wrong: the job fails at once."""

    code = "INVALID_INPUT_ERROR"
