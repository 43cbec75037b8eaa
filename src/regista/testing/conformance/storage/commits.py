"""Promises about jobs, and the one way to change them."""

import asyncio
from typing import Any

from msgspec.structs import replace

from ....model import ChildJob, CommitOutcome, CommitStatus, Job, JobStatus, TaskWrite
from ....storage.base import StorageBackend
from .kit import (
    APPLIED,
    EXISTS,
    FINISHED,
    MISSING,
    PARKED,
    REPEATED,
    STALE,
    START,
    V1,
    ManualClock,
    at,
    claim,
    claim_tasks,
    closed,
    commit,
    create,
    dispatch,
    due,
    event,
    fenced,
    job_of,
    make_job,
    make_task,
    message,
    next_of,
    offers,
    on_a_clock,
    only,
    picture,
    shown,
    task_of,
    timer,
    told,
    write,
)


class CommitPromises:
    """Part of the suite that `StorageConformance` is."""

    @on_a_clock
    async def test_a_created_job_is_there_as_it_was_written(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        job = make_job(
            input={"at": START, "deep": [{"a": None}]}, data={"ü": 1.5}, priority=2.0, client="acme"
        )
        assert await storage.commit([write(job)], "me") == [CommitOutcome(APPLIED)]
        assert await job_of(storage) == job
        assert await shown(storage, "job-1") == job

    @on_a_clock
    async def test_a_job_that_is_not_there_is_none(self, storage: StorageBackend, clock: ManualClock) -> None:
        await dispatch(storage, make_task())
        assert await shown(storage, "job-2") is None
        assert await storage.load(["job-2"], ["job-2_1_0"]) == ([None], [None])
        assert await storage.tasks_of("job-2") == []

    @on_a_clock
    async def test_records_are_loaded_in_the_order_asked(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task("a"), make_task("a", 1))
        await create(storage, make_job("b"))
        jobs, tasks = await storage.load(["b", "x", "a", "b"], ["a_1_1", "x", "a_1_0"])
        assert [job and job.id for job in jobs] == ["b", None, "a", "b"]
        assert [task and task.id for task in tasks] == ["a_1_1", None, "a_1_0"]

    @on_a_clock
    async def test_creating_a_job_that_exists_is_refused(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job(), events=(event("first"),))
        before = await picture(storage, ["job-1"])
        rival = write(make_job(state="other"), tasks=(TaskWrite(make_task()),), events=(event("second"),))
        assert await commit(storage, rival) == [EXISTS]
        assert await picture(storage, ["job-1"]) == before

    @on_a_clock
    async def test_creating_a_job_that_has_ended_is_refused(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        ended = make_job(body_hash="hash", **FINISHED)
        await create(storage, make_job(body_hash="hash"))
        await commit(storage, write(replace(ended, revision=2), events=(event(),)))
        assert await commit(storage, write(make_job(body_hash="hash"))) == [EXISTS]
        assert (await job_of(storage)).status is JobStatus.FINISHED

    @on_a_clock
    async def test_a_creation_sent_again_is_repeated(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        change = write(make_job(), events=(event(),))
        assert await commit(storage, change) == [APPLIED]
        before = await picture(storage, ["job-1"])
        assert await commit(storage, change, change) == [REPEATED, REPEATED]
        assert await picture(storage, ["job-1"]) == before

    @on_a_clock
    async def test_a_stale_revision_is_refused_and_writes_nothing(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        first = await dispatch(storage, make_task(dispatch_by=at(9)), messages=(message("m1"),))
        await commit(storage, write(next_of(first, state="moved")))
        before = await picture(storage, ["job-1", "child", "job-9"])
        stale = write(
            next_of(first, state="lost", **timer(5)),
            tasks=(fenced(closed(make_task())), TaskWrite(make_task(index=1, result_by=at(3)))),
            opens_branches=4,
            children=(ChildJob(make_job("child"), (event("born"),)),),
            messages=(message("m2", "job-9"),),
            consumes_message="m1",
            events=(event("lost"),),
            keep_lease_s=60,
        )
        assert await commit(storage, stale) == [STALE]
        assert await commit(storage, replace(stale, drop_tasks=True)) == [STALE]
        assert await picture(storage, ["job-1", "child", "job-9"]) == before
        assert await claim(storage) == []

    @on_a_clock
    async def test_my_own_change_sent_again_is_repeated(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job())
        change = write(
            next_of(await job_of(storage), **PARKED),
            messages=(message("m1"),),
            children=(ChildJob(make_job("child"), ()),),
            events=(event("once"),),
        )
        assert await commit(storage, change) == [APPLIED]
        before = await picture(storage, ["job-1", "child"])
        assert await commit(storage, change) == [REPEATED]
        assert await picture(storage, ["job-1", "child"]) == before

    @on_a_clock
    async def test_the_change_that_ended_a_job_sent_again_is_repeated(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job())
        change = write(next_of(await job_of(storage), **FINISHED), events=(event("the end"),))
        assert await commit(storage, change) == [APPLIED]
        assert await commit(storage, change) == [REPEATED]
        assert await told(storage) == [(1, "the end")]

    @on_a_clock
    async def test_my_own_change_is_repeated_even_if_another_built_upon_it(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job())
        mine = write(next_of(await job_of(storage)), events=(event("mine"),))
        assert await commit(storage, mine) == [APPLIED]
        assert await commit(storage, write(next_of(await job_of(storage)))) == [APPLIED]
        before = await picture(storage, ["job-1"])
        assert await commit(storage, mine) == [REPEATED]
        assert await picture(storage, ["job-1"]) == before

    @on_a_clock
    async def test_changing_a_job_that_is_not_there_is_missing(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        assert await commit(
            storage, write(make_job(revision=2)), only("job-1", fenced(closed(make_task())))
        ) == [MISSING, MISSING]
        assert not any((await picture(storage, [])).values())

    @on_a_clock
    async def test_my_own_change_is_repeated_even_if_the_job_has_ended_since(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job())
        mine = write(next_of(await job_of(storage)))
        assert await commit(storage, mine) == [APPLIED]
        assert await commit(storage, write(next_of(await job_of(storage), **FINISHED))) == [APPLIED]
        assert await commit(storage, mine) == [REPEATED]
        assert await commit(storage, replace(mine, token="another's")) == [STALE]

    @on_a_clock
    async def test_an_ended_job_is_final(self, storage: StorageBackend, clock: ManualClock) -> None:
        await create(storage, make_job())
        await commit(storage, write(next_of(await job_of(storage), **FINISHED)))
        again = write(next_of(await job_of(storage), status=JobStatus.RUNNING), events=(event(),))
        assert await commit(storage, again, only("job-1", fenced(closed(make_task())))) == [STALE, STALE]
        assert (await job_of(storage)).status is JobStatus.FINISHED
        assert await claim(storage) == []

    @on_a_clock
    async def test_an_ended_job_is_found(self, storage: StorageBackend, clock: ManualClock) -> None:
        for status in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED):
            await create(storage, make_job(status.value))
            ended = next_of(await job_of(storage, status.value), status=status, result={"n": 1})
            await commit(storage, write(ended))
            assert await shown(storage, status.value) == ended
            assert await job_of(storage, status.value) == ended

    @on_a_clock
    async def test_a_look_at_many_shows_each_job_as_it_is(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        jobs: dict[str, Job] = {}
        for status in JobStatus:
            name = status.value
            await create(storage, make_job(name, client=f"of {name}", input={"n": name}))
            jobs[name] = next_of(await job_of(storage, name), status=status, data={"n": 1})
            await commit(storage, write(jobs[name]))
        found = await storage.get(["unknown", *jobs, "pending", "finished"])
        assert found == [None, *jobs.values(), jobs["pending"], jobs["finished"]]
        assert await storage.get([]) == []

    @on_a_clock
    async def test_the_tasks_of_an_ended_job_are_over(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task(dispatch_by=at(1)), make_task(index=1, result_by=at(2)))
        assert await offers(storage, limit=1) == ["job-1_1_0"]
        await commit(storage, write(next_of(await job_of(storage), **FINISHED)))
        assert await storage.tasks_of("job-1") == []
        assert await storage.load([], ["job-1_1_0", "job-1_1_1"]) == ([], [None, None])
        assert (await due(storage), await storage.holders(), await offers(storage)) == ([], [], [])

    @on_a_clock
    async def test_each_change_of_a_commit_stands_on_its_own(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job("a"), make_job("b"))
        a, b = await job_of(storage, "a"), await job_of(storage, "b")
        late = replace(next_of(a), revision=1)
        assert await commit(
            storage,
            write(next_of(a, state="won")),
            write(next_of(a, state="lost")),
            write(make_job("c", revision=2)),
            write(late),
            write(next_of(b, state="fine")),
        ) == [APPLIED, STALE, MISSING, EXISTS, APPLIED]
        assert [(await job_of(storage, id)).state for id in "ab"] == ["won", "fine"]

    @on_a_clock
    async def test_the_changes_of_a_commit_are_applied_in_order(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        first = make_job()
        second = next_of(first, state="second")
        third = next_of(second, state="third")
        changes = [write(job, events=(event(job.state),)) for job in (first, second, third)]
        assert await commit(storage, *changes) == [APPLIED] * 3
        assert await job_of(storage) == third
        assert await told(storage) == [(1, "start"), (2, "second"), (3, "third")]

    @on_a_clock
    async def test_two_deciders_have_one_winner(self, storage: StorageBackend, clock: ManualClock) -> None:
        await create(storage, make_job())
        job = await job_of(storage)
        rivals = [write(next_of(job, state=f"s{n}"), events=(event(f"s{n}"),)) for n in range(8)]
        answers = await asyncio.gather(*(commit(storage, change) for change in rivals))
        kinds = [kind for (kind,) in answers]
        assert sorted(kinds) == sorted([APPLIED] + [STALE] * 7)
        winner = f"s{kinds.index(APPLIED)}"
        assert (await job_of(storage)).state == winner
        assert await told(storage) == [(1, winner)]

    @on_a_clock
    async def test_committing_nothing_is_fine(self, storage: StorageBackend, clock: ManualClock) -> None:
        assert await storage.commit([], "me") == []

    @on_a_clock
    async def test_what_cannot_be_written_is_not_written_in_half(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        job = await dispatch(storage, make_task(), messages=(message("m1"),))
        before = await picture(storage, ["job-1", "job-2", "child"])
        odd = {"odd": object()}
        good: dict[str, Any] = {
            "tasks": (fenced(closed(make_task())), TaskWrite(make_task(index=1))),
            "messages": (message("m2"),),
            "children": (ChildJob(make_job("child"), (event("born"),)),),
            "consumes_message": "m1",
            "events": (event("told"),),
        }
        for bad in (
            write(make_job("job-2", data=odd)),
            write(next_of(job, data=odd), **good),
            write(
                next_of(job), **{**good, "tasks": (*good["tasks"], TaskWrite(make_task(index=2, params=odd)))}
            ),
            write(next_of(job), **{**good, "messages": (message("m3", body=odd),)}),
            write(next_of(job), **{**good, "children": (ChildJob(make_job("child", data=odd), ()),)}),
            write(next_of(job), **{**good, "children": (ChildJob(make_job("child"), (event(detail=odd),)),)}),
            write(next_of(job), **{**good, "events": (event(detail=odd),)}),
        ):
            (outcome,) = await storage.commit([bad], "me")
            assert outcome.kind is CommitStatus.UNSTORABLE
            assert "object" in outcome.reason
            assert await picture(storage, ["job-1", "job-2", "child"]) == before

    @on_a_clock
    async def test_whoever_loads_a_record_owns_it(self, storage: StorageBackend, clock: ManualClock) -> None:
        await create(storage, make_job(data={"n": [1]}), messages=(message("m", body={"n": [1]}),))
        await dispatch(storage, make_task("job-2", params={"n": [1]}))
        (claimed,) = await storage.claim_ready("me", [V1], 1, 30)
        (offered,) = await claim_tasks(storage, limit=1)
        got = await shown(storage, "job-1")
        assert got is not None
        (waiting,) = await storage.messages(1)
        (held,) = await storage.held_by("w1")
        (listed,) = await storage.tasks_of("job-2")
        for loaded in (claimed, await job_of(storage), got):
            loaded.data["n"].append(2)
        for task in (offered, held, listed, await task_of(storage, "job-2_1_0")):
            task.params["n"].append(2)
        waiting.body["n"].append(2)
        assert (await job_of(storage)).data == {"n": [1]}
        assert (await task_of(storage, "job-2_1_0")).params == {"n": [1]}
        assert (await storage.messages(1))[0].body == {"n": [1]}

    @on_a_clock
    async def test_what_the_writer_does_with_its_record_later_is_its_own_business(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        data, params = {"n": 1}, {"n": 1}
        await create(storage, make_job(data=data))
        await dispatch(storage, make_task("job-2", params=params))
        data["n"] = params["n"] = 2
        assert (await job_of(storage)).data == {"n": 1}
        assert (await task_of(storage, "job-2_1_0")).params == {"n": 1}
