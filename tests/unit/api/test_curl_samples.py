import shlex

import msgspec
import pytest

from regista.api import curl_samples
from regista.api.app import NOUNS
from regista.api.routes import Operation, Schema

OPERATIONS = [operation for noun in NOUNS for operation in noun]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_a_sample_calls_its_operation_as_it_wants_to_be_called(operation: Operation) -> None:
    typed = shlex.split(curl_samples.curl_command(operation))

    assert typed[0] == "curl"
    assert ("-d" in typed) == (operation.method == "POST")  # curl posts what has a body
    assert ("X-Client-Token: $CLIENT_TOKEN" in typed) == (operation.kind == "client")
    (url,) = [word for word in typed if word.startswith("$REGISTA_URL/")]
    assert "{" not in url
    for pair in curl_samples.QUERIES.get(operation.id, "").split("&"):
        assert pair.partition("=")[0] in ("", *operation.query)


def test_every_body_of_a_sample_is_one_that_its_operation_takes() -> None:
    bodies = {one.id: one.body for one in OPERATIONS if one.body is not None}

    assert curl_samples.BODIES.keys() == bodies.keys()
    for name, body in curl_samples.BODIES.items():
        if not isinstance(bodies[name], Schema):
            msgspec.convert(body, bodies[name])


def test_a_stream_is_shown_as_it_comes() -> None:
    assert [one.id for one in OPERATIONS if " -N " in curl_samples.curl_command(one)] == [
        "streams_job_events",
        "streams_all_events",
    ]
