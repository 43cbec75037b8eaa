from datetime import UTC, datetime

import msgspec
import pytest

from regista import errors
from regista.api.problems import STATUS_OF, body_of, problem_of
from regista.client.refusals import error_of
from regista.errors import ApiError, RegistaError

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
]


@pytest.mark.parametrize("raised", RAISED, ids=lambda error: type(error).__name__)
def test_what_the_orchestrator_raised_is_what_the_client_raises(raised: RegistaError) -> None:
    problem = problem_of(raised)
    assert problem is not None

    revived = error_of(problem.status, msgspec.json.encode(body_of(problem)))

    assert type(revived) is type(raised)
    assert str(revived) == str(raised)
    for fact in ("job_id", "status", "limit", "used", "resets_at"):
        assert getattr(revived, fact, None) == getattr(raised, fact, None)


def test_every_class_that_the_api_maps_is_revived() -> None:
    assert set(STATUS_OF) - {type(error) for error in RAISED} == set()


def test_a_code_without_a_class_is_an_api_error() -> None:
    error = error_of(401, b'{"status": 401, "code": "token_missing", "detail": "expected a token"}')

    assert isinstance(error, ApiError)
    assert (error.status, error.code, error.detail) == (401, "token_missing", "expected a token")


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"[1]", b"\xff", b'"x"'])
def test_an_answer_that_is_no_problem_is_still_an_error(body: bytes) -> None:
    error = error_of(502, body)

    assert isinstance(error, ApiError)
    assert (error.status, error.code) == (502, "not_a_problem")
    assert error.detail.endswith("; is this an orchestrator?")
