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
├── CallError                what a client met instead of an answer
│   ├── ApiError             refused, for a reason that has no class of its own here
│   └── Unreachable          no orchestrator answered in time
├── HistoryDisabled          the question needs a history, and none is configured
├── NotPlain                 data that no store could keep
├── OrchestratorStopped      it stops, or has stopped; ask again later
├── StorageError
│   ├── StorageAway          no answer; the outcome of what was asked is unknown
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
        have = ", ".join(sorted(known)) or "none"
        super().__init__(f"no blueprint named {name!r}; registered: {have}")
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
        super().__init__(job_id, f"is already {status}")
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
        super().__init__(job_id, f"expected a quarantined job, got one that is {status}")
        self.status = status


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


class HistoryDisabled(RegistaError):
    """Only a history can answer this, and this orchestrator has none."""

    code = "history_disabled"

    def __init__(self, message: str = "no history is configured; HISTORY_DATABASE_URI names one") -> None:
        super().__init__(message)


class NotPlain(RegistaError, ValueError):
    """Data that no store could keep: not plain, of the wrong type, or too much of it. Nothing was written."""

    code = "not_plain"

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(
            f"{what}: expected plain data (dict with str keys, list, str, int, float, bool, None, datetime): {problem}"
        )
        self.what = what


class OrchestratorStopped(RegistaError):
    """It stops, or has not been started. Nothing is known to be written; ask again, with the same key."""

    code = "stopped"

    def __init__(self, message: str = "the orchestrator stops; ask again") -> None:
        super().__init__(message)


class StorageError(RegistaError):
    """The store could not do what was asked."""

    code = "storage_error"


class StorageAway(StorageError):
    """The store did not answer. Whether the write arrived is unknown."""

    code = "storage_away"


class StorageFailed(StorageAway):
    """A flush failed, and that is final: whether the write survived is unknown until a restart."""

    code = "storage_failed"


class StorageUnavailable(StorageAway):
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
