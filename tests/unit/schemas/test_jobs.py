from typing import Any

import msgspec
import pytest

from regista.schemas.jobs import Decision, Fork, JobObject, JobRequest, WaitForAny

#: The members of a job, in their order (spec/wire.md, A17).
MEMBERS = [
    *("id", "blueprint", "version", "status", "state", "input", "data", "result", "error", "progress"),
    *("waiting_for", "attempts", "created_at", "updated_at", "finished_at", "search_attributes"),
    *("parent_id", "bill"),
]


def test_a_job_has_exactly_the_members_that_the_wire_promises() -> None:
    # `client` says whose it is, to operators above all; `incomplete` is there only while history is away.
    assert list(JobObject.__struct_fields__) == [*MEMBERS, "client", "incomplete"]


def test_a_wish_needs_a_blueprint_alone() -> None:
    wish = msgspec.json.decode(b'{"blueprint": "x"}', type=JobRequest)

    assert (wish.blueprint, wish.input, wish.priority) == ("x", {}, 0.0)


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        (JobRequest, {"blueprint": "x", "webhook_url": "file:///etc/passwd"}),
        (JobRequest, {"blueprint": "x", "result_timeout": 0}),
        (JobRequest, {"blueprint": "x" * 1001}),
        (Decision, {"comment": "yes"}),
        (Fork, {"blueprint": "another"}),
        (WaitForAny, {"ids": []}),
    ],
)
def test_what_makes_no_sense_is_no_wish(shape: type[Any], body: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(body), type=shape)
