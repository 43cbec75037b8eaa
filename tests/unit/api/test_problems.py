import inspect

import msgspec
import pytest

from regista import errors
from regista.api.problems import STATUS_OF, Problem, ProblemBody, body_of, problem_of, problem_response
from regista.errors import JobAlreadyTerminal, RegistaError, StorageFailed


def test_a_problem_tells_its_code_and_repeats_its_words_for_old_clients() -> None:
    answer = problem_response(Problem(409, "taken", "somebody was faster", job_id="j"))

    assert answer.content_type == "application/problem+json"
    assert isinstance(answer.body, bytes)
    told = msgspec.json.decode(answer.body)
    assert told == {
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "code": "taken",
        "detail": "somebody was faster",
        "error": "somebody was faster",
        "job_id": "j",
    }
    assert msgspec.convert(told, ProblemBody).code == "taken"


def test_an_error_of_ours_becomes_the_problem_of_its_class() -> None:
    problem = problem_of(JobAlreadyTerminal("j", "finished"))

    assert problem is not None
    assert (problem.status, problem.code) == (409, "job_already_terminal")
    assert body_of(problem)["job_status"] == "finished"
    assert body_of(problem)["job_id"] == "j"


def test_what_is_worth_another_try_says_when() -> None:
    problem = problem_of(StorageFailed("the disk"))

    assert problem is not None
    assert problem_response(problem).headers["Retry-After"] == "1"


@pytest.mark.parametrize("kind", STATUS_OF)
def test_every_error_with_a_status_is_one_that_a_request_can_cause(kind: type[RegistaError]) -> None:
    assert inspect.getmodule(kind) is errors
    assert 400 <= STATUS_OF[kind] <= 503
