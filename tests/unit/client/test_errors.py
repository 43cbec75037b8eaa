import ssl
from datetime import UTC, datetime

import aiohttp
import msgspec
import pytest

from regista import errors
from regista.api.problems import STATUS_OF, body_of, problem_of
from regista.client.errors import (
    RequestFailure,
    error_from_response,
    failure_from_exception,
    raise_for_status,
)
from regista.errors import ApiError, JobNotFound, RegistaError, StorageUnavailable, Unreachable

RAISED: list[RegistaError] = [
    errors.NotSerializable("input", "a set"),
    errors.BlueprintNotFound("greet", ["other"]),
    errors.JobNotFound("j1"),
    errors.JobAlreadyTerminal("j1", "finished"),
    errors.IdempotencyConflict("j1", "key"),
    errors.ApprovalConflict("j1", "running", "does not wait"),
    errors.NotQuarantined("j1", "running"),
    errors.GraphvizMissing("svg"),
    errors.HistoryDisabled(),
    errors.BadQuery(4, "a value", "the end", "text stands in quotes"),
    errors.BadSearchAttribute("expected a 64-bit int"),
    errors.PayloadsDisabled(),
    errors.BadFileName("..", "a part of it is .."),
    errors.FileMissing("a.txt"),
    errors.FileTooLarge("a.txt", 10),
    errors.IntegrityError("records/j1/x", "00", "nothing"),
    errors.PayloadUnavailable("the payload store is away"),
    errors.OrchestratorStopped(),
    errors.WebhookRefused("10.0.0.1 is not a public address"),
    errors.ScheduleInvalid("cron", "a cron line", "x"),
    errors.QuotaExceeded(3, 3, datetime(2030, 1, 1, tzinfo=UTC), 60),
    errors.ScheduleNotFound("s1"),
    errors.ScheduleExists("s1"),
    errors.ScheduleInFile("s1"),
    errors.StorageFailed("disk full"),
    errors.StorageUnavailable("nobody answers"),
    errors.OperatorsOnly("see the audit log"),
    errors.BatchTooLarge("jobs", 1000, 1001),
    errors.WorkerNotFound("w1"),
    errors.PasswordsDisabled(),
    errors.DeliveryNotFound("d1"),
    errors.ApprovalTokenWrong(),
    errors.LinkInvalid(),
    errors.LinkExpired(),
    errors.NotReady(),
]


@pytest.mark.parametrize("raised", RAISED, ids=lambda error: type(error).__name__)
def test_what_the_orchestrator_raised_is_what_the_client_raises(raised: RegistaError) -> None:
    problem = problem_of(raised)
    assert problem is not None

    revived = error_from_response(problem.status, msgspec.json.encode(body_of(problem)))

    assert type(revived) is type(raised)
    assert str(revived) == str(raised)
    for fact in ("job_id", "status", "limit", "used", "resets_at"):
        assert getattr(revived, fact, None) == getattr(raised, fact, None)


def test_every_class_that_the_api_maps_is_revived() -> None:
    assert set(STATUS_OF) - {type(error) for error in RAISED} == set()


def test_a_code_without_a_class_is_an_api_error() -> None:
    error = error_from_response(
        401, b'{"status": 401, "code": "token_missing", "detail": "expected a token"}'
    )

    assert isinstance(error, ApiError)
    assert (error.status, error.code, error.detail) == (401, "token_missing", "expected a token")


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"[1]", b"\xff", b'"x"'])
def test_an_answer_that_is_no_problem_is_still_an_error(body: bytes) -> None:
    error = error_from_response(502, body)

    assert isinstance(error, ApiError)
    assert (error.status, error.code) == (502, "not_a_problem")
    assert error.detail.endswith("; is this an orchestrator?")


@pytest.mark.parametrize(
    ("error", "not_sent"),
    [
        (aiohttp.ConnectionTimeoutError(), True),
        (aiohttp.ServerDisconnectedError(), False),
        (aiohttp.ClientPayloadError(), False),
        (TimeoutError(), False),
        (ConnectionResetError(), False),
    ],
)
def test_only_a_connection_that_was_never_made_proves_that_nothing_was_sent(
    error: Exception, not_sent: bool
) -> None:
    failure = failure_from_exception(error, "")
    assert (failure.not_sent, failure.final) == (not_sent, False)
    assert isinstance(failure.as_error("http://here"), Unreachable)


async def test_a_refused_connection_was_not_used() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError) as caught:
            await session.get("http://127.0.0.1:9/")
    failure = failure_from_exception(caught.value, "")
    assert (failure.not_sent, failure.final, str(failure)) == (True, False, "connection refused")


def test_a_certificate_that_is_not_trusted_is_final() -> None:
    verdict = ssl.SSLCertVerificationError("no")
    verdict.verify_code, verdict.verify_message = 20, "unable to get local issuer certificate"
    key = aiohttp.client_reqrep.ConnectionKey("here", 443, True, True, None, None, None)
    failure = failure_from_exception(aiohttp.ClientConnectorCertificateError(key, verdict), "")
    assert "TLS_CA_PATH" in str(failure)
    assert (failure.not_sent, failure.final) == (True, True)
    assert not failure_from_exception(aiohttp.ClientConnectorSSLError(key, ssl.SSLError("no")), "").final


def test_a_server_that_hangs_up_without_an_answer_may_want_another_protocol() -> None:
    cut = aiohttp.ServerDisconnectedError()
    assert "write https://" in str(failure_from_exception(cut, "http://here"))
    assert "client certificate" in str(failure_from_exception(cut, "https://here"))


def test_a_refusal_is_an_error_unless_it_may_be_over_soon() -> None:
    with pytest.raises(JobNotFound):
        raise_for_status(404, None, b'{"code": "job_not_found", "detail": "no", "job_id": "j"}')
    with pytest.raises(RequestFailure) as soon:
        raise_for_status(503, "1.5", b'{"code": "storage_unavailable", "detail": "no"}')
    assert (soon.value.not_sent, soon.value.retry_after_s) == (False, 1.5)
    assert isinstance(soon.value.as_error("http://here"), StorageUnavailable)
    with pytest.raises(RequestFailure) as often:
        raise_for_status(429, "Fri, 31 Dec 1999 23:59:59 GMT", b"{}")
    assert (often.value.not_sent, often.value.retry_after_s) == (True, 0.0)
