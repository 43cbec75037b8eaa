from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.clock import EPOCH
from regista.model import TaskWrite
from regista.storage.codec import micros, moment_of
from regista.storage.redis.encode import ScriptBatch, field_of, length, version_name
from regista.testing.conformance.storage.kit import close_branch, make_job, make_task, write


@given(st.integers(0, 2**53))
def test_an_instant_survives_as_a_score_to_the_microsecond(after: int) -> None:
    moment = EPOCH + timedelta(microseconds=after)

    assert moment_of(float(micros(moment))) == moment


@given(st.integers(0, 10**9))
def test_a_far_instant_survives_nearly_and_never_falls_off_the_calendar(before_the_end: int) -> None:
    moment = datetime.max.replace(tzinfo=UTC) - timedelta(microseconds=before_the_end)

    assert abs(moment_of(float(micros(moment))) - moment) <= timedelta(microseconds=32)


def test_the_epoch_is_zero_and_a_duration_is_whole() -> None:
    assert micros(EPOCH) == 0
    assert length(0.1) == 100_000
    assert length(1e-7) == 0


def test_a_task_is_a_field_of_its_own_job_alone() -> None:
    assert field_of("a_b", "a_b_1_0") == "_1_0"
    assert field_of("job-2", "job-1_1_0") == "?job-1_1_0"
    assert field_of("job-1", "job-1") == "?job-1"
    assert field_of("job", "job_1_0_0") == "?job_1_0_0"
    assert field_of("", "_1_0") == "?_1_0"


def test_versions_of_different_names_never_look_alike() -> None:
    assert version_name(("film", "v1")) != version_name(("filmv", "1"))


def test_a_new_task_must_be_named_after_its_job() -> None:
    parcel = ScriptBatch()

    with pytest.raises(ValueError, match="expected a task id like job-1_1_0, got other"):
        parcel.add(write(make_job(), tasks=(TaskWrite(make_task(id="other")),)), "me")


def test_what_cannot_be_encoded_leaves_no_trace_in_the_parcel() -> None:
    parcel = ScriptBatch()
    parcel.add(close_branch(0), "me")
    before = (list(parcel.changes), list(parcel.bodies))

    bad = TaskWrite(make_task(index=1, params={"odd": object()}))

    with pytest.raises(TypeError):
        parcel.add(write(make_job(), tasks=(TaskWrite(make_task()), bad)), "me")

    assert (parcel.changes, parcel.bodies) == before
