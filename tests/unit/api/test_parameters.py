from collections.abc import Callable
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from regista.api import parameters
from regista.api.problems import Problem
from regista.model import JobStatus
from regista.schemas.pages import encode_position


def asked(query: str, **headers: str) -> Any:
    return make_mocked_request("GET", f"/x?{query}", headers=headers)


@pytest.mark.parametrize(
    ("read", "query", "value"),
    [
        (lambda r: parameters.seconds(r, "wait", 60), "", None),
        (lambda r: parameters.seconds(r, "wait", 60), "wait=0", 0.0),
        (lambda r: parameters.seconds(r, "wait", 60), "wait=2.5", 2.5),
        (lambda r: parameters.seconds(r, "wait", 60), "wait=1e300", 60),
        (lambda r: parameters.seconds(r, "wait", 60), "wait=inf", 60),
        (lambda r: parameters.whole(r, "limit", 100, 1, 1000), "", 100),
        (lambda r: parameters.whole(r, "limit", 100, 1, 50), "", 50),
        (lambda r: parameters.whole(r, "limit", 100, 1, 1000), "limit=7", 7),
        (lambda r: parameters.choice(r, "status", JobStatus), "", None),
        (lambda r: parameters.choice(r, "status", JobStatus), "status=failed", JobStatus.FAILED),
        (lambda r: parameters.place(r, int), "next=", None),
        (lambda r: parameters.place(r, int), f"next={encode_position(17)}", 17),
    ],
)
def test_a_parameter_becomes_a_value(read: Callable[[Any], Any], query: str, value: Any) -> None:
    assert read(asked(query)) == value


@pytest.mark.parametrize(
    ("read", "query"),
    [
        (lambda r: parameters.seconds(r, "wait", 60), "wait=-0.1"),
        (lambda r: parameters.seconds(r, "wait", 60), "wait=nan"),
        (lambda r: parameters.seconds(r, "wait", 60), "wait="),
        (lambda r: parameters.whole(r, "limit", 100, 1, 1000), "limit=0"),
        (lambda r: parameters.whole(r, "limit", 100, 1, 1000), "limit=1001"),
        (lambda r: parameters.whole(r, "limit", 100, 1, 1000), "limit=1.0"),
        (lambda r: parameters.whole(r, "limit", 100, 1, 1000), "limit=%2B1"),
        (lambda r: parameters.choice(r, "status", JobStatus), "status=FAILED"),
        (lambda r: parameters.place(r, int), "next=x"),
    ],
)
def test_what_makes_no_sense_is_a_problem_that_names_it(read: Callable[[Any], Any], query: str) -> None:
    with pytest.raises(Problem) as refused:
        read(asked(query))

    assert (refused.value.status, refused.value.code) == (400, "bad_parameter")
    assert refused.value.more["parameter"] == query.partition("=")[0]


def test_the_key_of_the_body_wins_over_the_header_and_both_are_checked() -> None:
    header = asked("", **{"Idempotency-Key": "h"})

    assert parameters.idempotency_key(header) == "h"
    assert parameters.idempotency_key(header, "b") == "b"
    assert parameters.idempotency_key(asked(""), "b") == "b"
    assert parameters.idempotency_key(asked("")) is None
    with pytest.raises(Problem):
        parameters.idempotency_key(asked("", **{"Idempotency-Key": "a b"}), "b")
