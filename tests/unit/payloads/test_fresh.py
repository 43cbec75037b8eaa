"""What was written a short while ago need not be written again; of what is older, nobody can say."""

from regista.payloads.fresh import RecentUploads
from regista.testing.clock import Clock


def test_a_write_is_good_for_ten_minutes_and_for_its_own_job() -> None:
    clock = Clock()
    fresh = RecentUploads(clock)

    fresh.add("j1", "records/j1/a")

    assert fresh.has("j1", "records/j1/a")
    assert not fresh.has("j1", "records/j1/b")
    assert not fresh.has("j2", "records/j1/a")
    clock.move(599)
    assert fresh.has("j1", "records/j1/a")
    clock.move(2)
    assert not fresh.has("j1", "records/j1/a")


def test_nothing_of_a_job_that_was_dropped_is_sure_to_be_there() -> None:
    fresh = RecentUploads(Clock())
    fresh.add("j1", "records/j1/a")

    fresh.drop("j1")
    fresh.drop("never heard of")

    assert not fresh.has("j1", "records/j1/a")


def test_jobs_that_nobody_writes_to_are_forgotten() -> None:
    clock = Clock()
    fresh = RecentUploads(clock)
    for number in range(100):
        fresh.add(f"j{number}", "a")
    clock.move(300)
    fresh.add("j0", "b")
    clock.move(301)

    fresh.add("new", "a")

    assert list(fresh._written) == ["j0", "new"]
