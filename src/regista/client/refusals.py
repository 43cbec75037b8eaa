"""From problem+json back to the exception that the orchestrator raised."""

from typing import Any

import msgspec

from .. import errors
from ..errors import ApiError, RegistaError

#: code → the class that has it, for what an orchestrator may refuse with.
_CLASSES: dict[str, type[RegistaError]] = {
    kind.code: kind
    for kind in (
        errors.BlueprintNotFound,
        errors.GraphvizMissing,
        errors.HistoryDisabled,
        errors.BadQuery,
        errors.BadSearchAttribute,
        errors.HistoryUnavailable,
        errors.JobNotFound,
        errors.JobAlreadyTerminal,
        errors.IdempotencyConflict,
        errors.ApprovalConflict,
        errors.NotQuarantined,
        errors.NotSerializable,
        errors.QuotaExceeded,
        errors.WebhookRefused,
        errors.ScheduleNotFound,
        errors.ScheduleExists,
        errors.ScheduleInFile,
        errors.ScheduleInvalid,
        errors.PayloadsDisabled,
        errors.BadFileName,
        errors.FileMissing,
        errors.FileTooLarge,
        errors.IntegrityError,
        errors.PayloadUnavailable,
        errors.OrchestratorStopped,
        errors.StorageFailed,
        errors.StorageUnavailable,
    )
}
#: Member of the problem → attribute of the exception.
_FACTS = {
    "job_id": "job_id",
    "job_status": "status",
    "limit": "limit",
    "used": "used",
    "resets_at": "resets_at",
}


def error_of(status: int, body: bytes) -> RegistaError:
    """The exception that an answer of 400 or more stands for."""
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        text = body[:200].decode(errors="replace").strip() or "the answer has no body"
        return ApiError(status, "not_a_problem", f"{text}; is this an orchestrator?")
    return error_in(problem, status)


def error_in(problem: dict[str, Any], status: int = 0) -> RegistaError:
    """The exception that a problem describes: a class of ours where its code has one, else ApiError."""
    code = str(problem.get("code", ""))
    detail = str(problem.get("detail") or problem.get("error") or "no reason was given")
    kind = _CLASSES.get(code)
    if kind is None:
        said = problem.get("status")
        return ApiError(status or (said if isinstance(said, int) else 0), code or "unknown", detail)
    # Made without its own `__init__`: the orchestrator's words are the message, and nothing is added to them.
    error = kind.__new__(kind, detail)
    for member, attribute in _FACTS.items():
        if member in problem:
            setattr(error, attribute, problem[member])
    if isinstance(error, errors.BadQuery):
        error.facts = {name: problem.get(name) for name in ("position", "expected", "found", "hint")}
    return error
