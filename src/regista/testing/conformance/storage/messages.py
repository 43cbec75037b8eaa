"""Promises about words between jobs, and jobs born by jobs."""

from ....model import ChildJob
from ....storage.base import StorageBackend
from .kit import (
    ALL,
    APPLIED,
    FINISHED,
    PARKED,
    STALE,
    ManualClock,
    claim,
    commit,
    create,
    event,
    job_of,
    make_job,
    message,
    next_of,
    on_a_clock,
    only,
    picture,
    shown,
    told,
    waiting_messages,
    write,
)


class MessagePromises:
    """Part of the suite that `StorageConformance` is."""

    # messages

    @on_a_clock
    async def test_messages_are_stored_with_the_commit_oldest_first(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job("a"), messages=(message("m2", body={"n": 1}), message("m1")))
        await create(storage, make_job("b"), messages=(message("m0"),))
        assert await storage.messages(ALL) == [message("m2", body={"n": 1}), message("m1"), message("m0")]
        assert [message.id for message in await storage.messages(2)] == ["m2", "m1"]

    @on_a_clock
    async def test_a_message_is_consumed_once(self, storage: StorageBackend, clock: ManualClock) -> None:
        await create(storage, make_job(), messages=(message("m1"), message("m2")))
        job = await job_of(storage)
        acted = next_of(job, state="told")
        assert await commit(storage, write(acted, consumes_message="m1", events=(event(),))) == [APPLIED]
        assert await waiting_messages(storage) == ["m2"]
        before = await picture(storage, ["job-1"])
        again = write(next_of(acted, state="twice"), consumes_message="m1", events=(event(),))
        assert await commit(storage, again) == [STALE]
        assert await picture(storage, ["job-1"]) == before

    @on_a_clock
    async def test_a_message_can_be_consumed_alone_when_its_job_has_ended(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job(), messages=(message("m1"), message("m2", "never born")))
        await commit(storage, write(next_of(await job_of(storage), **FINISHED)))
        assert await commit(storage, only("job-1", consumes_message="m1")) == [APPLIED]
        assert await commit(storage, only("job-1", consumes_message="m1")) == [STALE]
        assert await commit(storage, only("never born", consumes_message="m2")) == [APPLIED]
        assert await waiting_messages(storage) == []

    @on_a_clock
    async def test_a_message_said_twice_is_one(self, storage: StorageBackend, clock: ManualClock) -> None:
        await create(storage, make_job("a"), messages=(message("m1"), message("m2")))
        await create(storage, make_job("b"), messages=(message("m1"),))
        assert await waiting_messages(storage) == ["m1", "m2"]

    # children

    @on_a_clock
    async def test_a_child_is_born_ready_and_with_its_events(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        child = make_job("child", parent_id="job-1", data={"n": 1})
        birth = ChildJob(child, (event("born"), event("named")))
        await create(storage, make_job(**PARKED), children=(birth,), events=(event("parent"),))
        assert await shown(storage, "child") == child
        assert await told(storage, "child") == [(1, "born"), (2, "named")]
        assert await told(storage) == [(1, "parent")]
        assert await claim(storage) == ["child"]
        assert await commit(storage, write(next_of(child))) == [APPLIED]

    @on_a_clock
    async def test_a_child_that_is_there_is_left_alone(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job("child"), make_job("ended"))
        grown = next_of(await job_of(storage, "child"), **PARKED)
        ended = next_of(await job_of(storage, "ended"), **FINISHED)
        await commit(storage, write(grown), write(ended))
        births = tuple(ChildJob(make_job(id), (event(),)) for id in ("child", "ended"))
        await create(storage, make_job(**PARKED), children=births)
        assert await storage.load(["child", "ended"]) == ([grown, ended], [])
        assert (await claim(storage), await told(storage, "child")) == ([], [])
