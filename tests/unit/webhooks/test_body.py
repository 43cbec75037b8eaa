"""What a webhook says: the words of the documents, those of the standard, and nothing that a client sent."""

import msgspec

from regista import JobStatus
from regista.model import AwaitHuman, Fault
from regista.webhooks.body import render_body
from tests.webhook_kit import delivery

ASKED = AwaitHuman("May it?", {"yes": "done", "no": "end"}, "mail")


def test_a_finished_job_is_told_in_both_vocabularies() -> None:
    told = msgspec.json.decode(render_body(delivery(), "secret"))
    assert told == {
        "id": "job-1-000002",
        "type": "job.finished",
        "event": "job_finished",
        "timestamp": "2026-01-02T03:04:05Z",
        "sequence": 2,
        "job_id": "job-1",
        "status": "finished",
        "result": {"n": 1},
        "error": None,
        "data": {
            "id": "job-1",
            "blueprint": "script",
            "version": "v1",
            "status": "finished",
            "state": "done",
            "waiting_for": None,
            "created_at": "2026-01-02T03:04:05Z",
            "updated_at": "2026-01-02T03:04:05Z",
            "finished_at": None,
            "search_attributes": {},
            "parent_id": None,
        },
    }


def test_a_question_carries_how_to_answer_it() -> None:
    one = delivery(status=JobStatus.WAITING_FOR_HUMAN, wait=ASKED)
    told = msgspec.json.decode(render_body(one, "t-0k", "https://jobs.example.com/"))
    assert told["approval"] == {
        "message": "May it?",
        "decisions": ["no", "yes"],
        "integration": "mail",
        "token": "t-0k",
        "url": "https://jobs.example.com/_public/webhooks/approval/job-1?token=t-0k",
    }


def test_the_token_is_in_no_other_word() -> None:
    asking = msgspec.json.decode(
        render_body(delivery(status=JobStatus.WAITING_FOR_HUMAN, wait=ASKED), "t-0k")
    )
    del asking["approval"]
    assert "t-0k" not in str(asking)
    for status in JobStatus:
        if status is not JobStatus.WAITING_FOR_HUMAN:
            assert b"t-0k" not in render_body(delivery(status=status, wait=ASKED), "t-0k")


def test_what_was_left_out_is_named() -> None:
    assert msgspec.json.decode(render_body(delivery(omitted=("result",)), ""))["omitted"] == ["result"]


def test_every_try_says_the_same_bytes() -> None:
    assert render_body(delivery(tries=0), "t") == render_body(delivery(tries=7, error="answered 500"), "t")


def test_why_a_job_failed_is_told() -> None:
    one = delivery(status=JobStatus.FAILED)
    failed = msgspec.structs.replace(
        one, job=msgspec.structs.replace(one.job, error=Fault("broken", "it is"))
    )
    assert msgspec.json.decode(render_body(failed, ""))["error"] == {"code": "broken", "message": "it is"}
