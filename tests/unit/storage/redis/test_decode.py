from datetime import UTC, datetime

from regista.model import QueueKey, QueueStatus, queue_key_text
from regista.storage.base import Due, DueKind, Hint, HintKind
from regista.storage.redis.decode import due_of, hints_of, lane_status_of
from regista.testing.conformance.storage.kit import START


def test_an_empty_table_of_lua_is_no_hints() -> None:
    assert hints_of(b"\x80") == []
    assert hints_of(b"\x90") == []


def test_hints_are_kind_id_and_addressee_in_turn_and_unknown_ones_are_passed_over() -> None:
    assert hints_of(b"\x99\xa5ready\xa0\xa2i1\xa4news\xa1x\xa0\xa7changed\xa1j\xa0") == [
        Hint(HintKind.READY, "", "i1"),
        Hint(HintKind.CHANGED, "j"),
    ]


def test_a_deadline_says_whose_it_is() -> None:
    at = datetime(2026, 3, 1, 12, 0, 0, 250_001, tzinfo=UTC)
    score = b"1772366400250001"

    assert due_of(b"Jjob-1", score) == Due(at, DueKind.JOB, "job-1", "job-1")
    assert due_of(b"Tjob-1_2_0", score) == Due(at, DueKind.TASK, "job-1_2_0", "job-1")


def test_a_line_is_told_with_the_age_of_its_oldest() -> None:
    queue_key = QueueKey("night", "encode", "")
    row = [queue_key_text(queue_key).encode(), "ünn".encode(), 3, repr(START.timestamp()).encode()]

    assert lane_status_of(row) == QueueStatus(queue_key, "ünn", 3, START)
