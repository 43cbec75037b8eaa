"""Problems: every refusal is `application/problem+json` with a stable `code` (RFC 9457)."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from .. import errors

#: The class of an error → the status of its answer. The nearest class up the tree decides.
STATUS_OF: dict[type[errors.RegistaError], int] = {
    errors.NotSerializable: 400,
    errors.BadQuery: 400,
    errors.BadSearchAttribute: 400,
    errors.WebhookRefused: 400,
    errors.BlueprintNotFound: 404,
    errors.JobNotFound: 404,
    errors.JobAlreadyTerminal: 409,
    errors.IdempotencyConflict: 409,
    errors.QuotaExceeded: 429,
    errors.OperatorsOnly: 403,
    errors.BatchTooLarge: 400,
    errors.WorkerNotFound: 404,
    errors.PasswordsDisabled: 409,
    errors.DeliveryNotFound: 404,
    errors.ApprovalTokenWrong: 403,
    errors.LinkInvalid: 403,
    errors.LinkExpired: 403,
    errors.ApprovalConflict: 409,
    errors.NotQuarantined: 409,
    errors.ScheduleInvalid: 400,
    errors.ScheduleNotFound: 404,
    errors.ScheduleExists: 409,
    errors.ScheduleInFile: 409,
    errors.GraphvizMissing: 501,
    errors.HistoryDisabled: 501,
    errors.PayloadsDisabled: 501,
    errors.BadFileName: 400,
    errors.FileMissing: 404,
    errors.FileTooLarge: 413,
    errors.IntegrityError: 502,
    errors.PayloadUnavailable: 503,
    errors.NotReady: 503,
    errors.OrchestratorStopped: 503,
    errors.StorageFailed: 503,
    errors.StorageUnavailable: 503,
}
#: The code of a refusal, for whoever counts answers.
CODE = web.ResponseKey("code", str)
#: Answers that are worth another try say when, in seconds.
RETRY_AFTER = {503: "1", 429: "1"}


class ProblemBody(Struct, frozen=True, kw_only=True):
    """Why a request was refused. `code` is stable; some problems have members of their own beside these."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    error: str


class Problem(Exception):
    """A refusal, raised by a handler."""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more


def problem_of(error: errors.RegistaError) -> Problem | None:
    """The refusal that one of our errors means; None when it is our own failure."""
    for kind in type(error).__mro__:
        status = STATUS_OF.get(kind)
        if status is not None:
            problem = Problem(status, error.code, str(error), **getattr(error, "facts", {}))
            if isinstance(error, errors.QuotaExceeded):
                problem.headers["Retry-After"] = str(error.retry_after_s)
            if isinstance(error, errors.JobError):
                problem.more["job_id"] = error.job_id
                if (now := getattr(error, "status", None)) is not None:
                    problem.more["job_status"] = now
            return problem
    return None


def body_of(problem: Problem) -> dict[str, Any]:
    """The JSON of a refusal. `error` repeats the words for clients that know nothing of problems."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        "error": problem.detail,
        **problem.more,
    }


def problem_response(problem: Problem) -> web.Response:
    """The answer that carries a refusal."""
    headers = dict(problem.headers)
    if problem.status in RETRY_AFTER:
        headers.setdefault("Retry-After", RETRY_AFTER[problem.status])
    response = web.Response(
        status=problem.status,
        body=msgspec.json.encode(body_of(problem)),
        content_type="application/problem+json",
        headers=headers,
    )
    response[CODE] = problem.code
    if headers.get("Connection") == "close":  # the header alone is only a word
        response.force_close()
    return response
