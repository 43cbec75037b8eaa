"""From failed requests to exceptions: what the orchestrator answered, and what may be tried again."""

from typing import Any

import aiohttp
import msgspec

from .. import errors
from ..connection_errors import describe
from ..errors import ApiError, RegistaError, Unreachable

#: code → the class that has it, for what an orchestrator may answer.
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
        errors.OperatorsOnly,
        errors.BatchTooLarge,
        errors.WorkerNotFound,
        errors.PasswordsDisabled,
        errors.DeliveryNotFound,
        errors.ApprovalTokenWrong,
        errors.LinkInvalid,
        errors.LinkExpired,
        errors.NotReady,
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
#: A later try may succeed: the request was refused for now, or a proxy did not reach the orchestrator.
_TEMPORARY = frozenset({429, 502, 503, 504})
#: Raised before a connection exists, so the request was not sent.
_NOT_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class RequestFailure(Exception):
    """A try of a request failed, and the next one may succeed."""

    def __init__(
        self,
        reason: str,
        *,
        not_sent: bool = False,
        final: bool = False,
        retry_after_s: float = 0.0,
        error: RegistaError | None = None,
    ) -> None:
        super().__init__(reason)
        #: The orchestrator cannot have acted on the request.
        self.not_sent = not_sent
        #: Another try would fail in the same way, as with a certificate that is not trusted.
        self.final = final
        self.retry_after_s = retry_after_s
        self._error = error

    def as_error(self, url: str) -> RegistaError:
        """The exception to raise when there is no next try."""
        return self._error or Unreachable(url, str(self))


def failure_from_exception(error: Exception, never_answered: str) -> RequestFailure:
    """What a failed connection means. `never_answered`: the URL, if no answer has ever come from it."""
    return RequestFailure(
        describe(error, never_answered),
        not_sent=isinstance(error, _NOT_CONNECTED),
        final=isinstance(error, aiohttp.ClientConnectorCertificateError),
    )


def raise_for_status(status: int, retry_after: str | None, body: bytes) -> None:
    """Raise for an answer of 400 or more: RequestFailure if a later try may succeed, else the exception."""
    if status < 400:
        return
    error = error_from_response(status, body)
    if status not in _TEMPORARY:
        raise error
    raise RequestFailure(
        str(error), not_sent=status == 429, retry_after_s=_seconds(retry_after or ""), error=error
    )


def error_from_response(status: int, body: bytes) -> RegistaError:
    """The exception for an answer of 400 or more."""
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        text = body[:200].decode(errors="replace").strip() or "the answer has no body"
        return ApiError(status, "not_a_problem", f"{text}; is this an orchestrator?")
    return error_from_problem(problem, status)


def error_from_problem(problem: dict[str, Any], status: int = 0) -> RegistaError:
    """The exception that a problem describes: the class with its code, else ApiError."""
    code = str(problem.get("code", ""))
    detail = str(problem.get("detail") or problem.get("error") or "no reason was given")
    kind = _CLASSES.get(code)
    if kind is None:
        named = problem.get("status")
        return ApiError(status or (named if isinstance(named, int) else 0), code or "unknown", detail)
    # Made without its own `__init__`: the orchestrator's text is the message.
    error = kind.__new__(kind, detail)
    for member, attribute in _FACTS.items():
        if member in problem:
            setattr(error, attribute, problem[member])
    if isinstance(error, errors.BadQuery):
        error.facts = {name: problem.get(name) for name in ("position", "expected", "found", "hint")}
    return error


def _seconds(text: str) -> float:
    """`Retry-After` in seconds; 0 for a date or nothing."""
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0
