"""Live streams over real HTTP: history, then live, no gap, no duplicate, resumable. FENCES 4."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientPayloadError, ClientResponse

from regista import Job, TaskContext, Worker
from regista.engines import live_events
from regista.services import events as follow
from tests.acceptance.serving import House, serving
from tests.stopwatch import Stopwatch
from tests.support import one_task


class Seen(msgspec.Struct):
    """One event of a stream."""

    id: str | None
    kind: str
    data: Any


def worker() -> Worker:
    hands = Worker("hands", concurrency=10)

    @hands.task("work")
    async def work(params: dict[str, Any], context: TaskContext) -> None:
        for step in range(params.get("steps", 0)):
            context.progress((step + 1) / 10, f"step {step}")
            await asyncio.sleep(0.02)
        await asyncio.sleep(params.get("sleep", 0))

    return hands


def run(body: Callable[[House], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        async with serving(one_task(), workers=[worker()], **options) as house:
            await body(house)

    asyncio.run(main())


async def events(answer: ClientResponse) -> AsyncIterator[Seen]:
    """The events of a stream, to its end."""
    seen = Seen(None, "message", None)
    async for line in answer.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        match name:
            case "id":
                seen.id = value
            case "event":
                seen.kind = value
            case "data":
                seen.data = msgspec.json.decode(value)
            case "" if seen.data is not None:
                yield seen
                seen = Seen(None, "message", None)


def opened(house: House, path: str, last_id: str | None = None, token: str = "t-ada") -> Any:
    headers = {"X-Client-Token": token} | ({} if last_id is None else {"Last-Event-ID": last_id})
    return house.session.get(house.url + path, headers=headers)


async def all_of(house: House, path: str, last_id: str | None = None) -> list[Seen]:
    async with opened(house, path, last_id) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        return [seen async for seen in events(answer)]


async def some_of(answer: ClientResponse, count: int) -> list[Seen]:
    found: list[Seen] = []
    async for seen in events(answer):
        found.append(seen)
        if len(found) == count:
            break
    return found


async def finished(house: House, **input: Any) -> Job:
    return await house.director.run_job("script", input, client="ada")


# -- one job ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_stream_tells_what_was_and_what_comes_and_ends_with_the_job(kind: str, tmp_path: Path) -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", {"sleep": 0.3})
        seen = await all_of(house, f"/api/v1/jobs/{job['id']}/events")
        assert [one.id for one in seen] == [str(n) for n in range(1, len(seen) + 1)]
        assert [one.kind for one in seen] == [one.data["type"] for one in seen]
        assert (seen[0].kind, seen[-1].kind) == ("job_created", "job_finished")
        told = (await house.get(f"/api/v1/jobs/{job['id']}/history")).json["items"]
        assert [one.data for one in seen] == told

    run(body, storage="memory" if kind == "memory" else f"sqlite:{tmp_path / 'jobs.db'}")


def test_a_stream_goes_on_after_the_last_id_from_header_or_query() -> None:
    async def body(house: House) -> None:
        job = await finished(house)
        path = f"/api/v1/jobs/{job.id}/events"
        whole = await all_of(house, path)
        assert await all_of(house, path, last_id="3") == whole[3:]
        assert await all_of(house, path + "?after=5") == whole[5:]
        assert await all_of(house, path + "?after=1", last_id="4") == whole[4:]
        await house.director.recorder.drain()
        assert await all_of(house, path, last_id="3") == whole[3:]

    run(body)


def test_there_is_nothing_to_come_back_for_after_the_last_event() -> None:
    async def body(house: House) -> None:
        job = await finished(house)
        last = len(await all_of(house, f"/api/v1/jobs/{job.id}/events"))
        assert (await house.get(f"/api/v1/jobs/{job.id}/events?after={last}")).status == 204

    run(body)


def test_progress_is_seen_live_without_an_id() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", {"steps": 5})
        seen = await all_of(house, f"/api/v1/jobs/{job['id']}/events")
        told = [one for one in seen if one.kind == "progress"]
        assert {one.id for one in told} == {None}
        assert told[-1].data["progress"] == 0.5
        assert told[-1].data["message"] == "step 4"
        assert told[-1].data["job_id"] == job["id"]
        ids = [int(one.id) for one in seen if one.id is not None]
        assert ids == list(range(1, len(ids) + 1))

    run(body)


def test_an_entry_that_was_recorded_and_pruned_behind_our_back_is_read_from_the_store() -> None:
    async def body(house: House) -> None:
        # Given a feed that hears nothing, as on another instance whose hints get lost
        deaf = house.director.feed
        job = await house.submit("script", {"sleep": 0.2})
        async with opened(house, f"/api/v1/jobs/{job['id']}/events") as answer:
            first = await some_of(answer, 3)
            wake, deaf.wake = deaf.wake, lambda: None  # type: ignore[method-assign]
            await house.director.wait(job["id"])
            await house.director.recorder.drain()
            deaf.wake = wake  # type: ignore[method-assign]
            rest = [seen async for seen in events(answer)]
        ids = [int(one.id or 0) for one in first + rest]
        assert ids == list(range(1, len(ids) + 1))
        assert rest[-1].kind == "job_finished"

    # When the reader looks by itself because all is quiet
    usual, follow.QUIET_S = follow.QUIET_S, 0.3
    try:
        run(body)
    finally:
        follow.QUIET_S = usual


def test_a_quiet_stream_shows_signs_of_life() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", {"sleep": 60})
        async with opened(house, f"/api/v1/jobs/{job['id']}/events") as answer:
            async with asyncio.timeout(5):
                while (line := await answer.content.readline()) != b": still here\n":
                    assert line

    usual, follow.QUIET_S = follow.QUIET_S, 0.1
    try:
        run(body)
    finally:
        follow.QUIET_S = usual


# -- all jobs --------------------------------------------------------------------------------------


def test_the_stream_of_a_client_tells_of_its_jobs_alone_and_an_operators_of_all() -> None:
    async def body(house: House) -> None:
        async with (
            opened(house, "/api/v1/events") as mine,
            opened(house, "/api/v1/events", token="t-ops") as everybodys,
        ):
            other = (await house.post("/api/v1/jobs?wait=5", {"blueprint": "script"}, token="t-bob")).json
            own = (await house.post("/api/v1/jobs?wait=5", {"blueprint": "script"})).json
            count = len((await house.get(f"/api/v1/jobs/{own['id']}/history")).json["items"])
            seen = await some_of(mine, count)
            assert {one.data["job_id"] for one in seen} == {own["id"]}
            assert [one.data["seq"] for one in seen] == list(range(1, count + 1))
            all_seen = await some_of(everybodys, 2 * count)
            assert {one.data["job_id"] for one in all_seen} == {own["id"], other["id"]}

    run(body)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("recorded", [True, False])
def test_the_stream_of_a_client_goes_on_from_any_id(kind: str, recorded: bool, tmp_path: Path) -> None:
    async def body(house: House) -> None:
        jobs = [await finished(house, n=n) for n in range(3)]
        await house.director.run_job("script", client="bob")
        count = len(await house.director.events(jobs[0].id))
        if recorded:
            await house.director.recorder.drain()
        async with opened(house, "/api/v1/events?after=0") as answer:
            whole = await some_of(answer, 3 * count)
        assert {one.data["job_id"] for one in whole} == {job.id for job in jobs}
        for cut in (0, 1, count - 1, count, 2 * count + 1):
            async with opened(house, "/api/v1/events", last_id=whole[cut].id) as answer:
                assert await some_of(answer, 3 * count - cut - 1) == whole[cut + 1 :]
        async with opened(house, "/api/v1/events", last_id=whole[-1].id) as answer:
            late = await finished(house)
            assert (await some_of(answer, 1))[0].data["job_id"] == late.id

    run(body, storage="memory" if kind == "memory" else f"sqlite:{tmp_path / 'jobs.db'}")


def test_the_stream_of_a_client_finds_what_went_by_unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_events, "RECHECK_S", 0.2)

    async def body(house: House) -> None:
        heard = house.director.feed
        async with opened(house, "/api/v1/events") as answer:
            await asyncio.sleep(0.05)
            wake, heard.wake = heard.wake, lambda: None  # type: ignore[method-assign]
            lost = await finished(house)
            await house.director.recorder.drain()
            heard.wake = wake  # type: ignore[method-assign]
            count = len(await house.director.events(lost.id))
            later = await finished(house)
            seen = await some_of(answer, 2 * count)
        assert [one.data["job_id"] for one in seen] == [lost.id] * count + [later.id] * count
        assert [one.data["seq"] for one in seen] == [*range(1, count + 1)] * 2

    run(body)


def test_many_readers_under_load_miss_nothing_and_hear_nothing_twice() -> None:
    async def body(house: House) -> None:
        async def reader(after: str) -> list[Seen]:
            found: list[Seen] = []
            ends = 0
            async with opened(house, f"/api/v1/events{after}") as answer:
                ready.set()
                async for seen in events(answer):
                    found.append(seen)
                    ends += seen.kind == "job_finished"
                    if ends == 60:
                        return found
            raise AssertionError("the stream ended")

        ready = asyncio.Event()
        readers = [asyncio.create_task(reader("?after=0")) for _ in range(3)]
        await ready.wait()
        ids: list[str] = []
        for n in range(6):
            wishes = [{"blueprint": "script", "input": {"n": n}}] * 10
            ids += (await house.post("/api/v1/jobs:batch?return=ids", {"jobs": wishes})).json["items"]
            readers.append(asyncio.create_task(reader("?after=0")))
        for told in await asyncio.gather(*readers):
            for job_id in ids:
                seqs = [one.data["seq"] for one in told if one.data["job_id"] == job_id]
                assert seqs == list(range(1, len(seqs) + 1))
            assert len({one.id for one in told}) == len(told)

    run(body)


# -- the end ---------------------------------------------------------------------------------------


def test_a_reader_that_lets_too_much_gather_is_cut_off_and_comes_back_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_events, "MAX_BEHIND", 20)

    async def body(house: House) -> None:
        async with opened(house, "/api/v1/events") as answer:
            await asyncio.sleep(0.05)
            # Told in one go, faster than anybody could take it
            reader = house.director.feed._wide[0]
            pause = reader.take

            async def sleepy(timeout_s: float) -> Any:
                await asyncio.sleep(0.3)
                return await pause(timeout_s)

            reader.take = sleepy  # type: ignore[method-assign]
            for _ in range(2):
                jobs = [{"blueprint": "script"}] * 20
                await house.post("/api/v1/jobs:batch?return=ids", {"jobs": jobs})
                await asyncio.sleep(0.1)
            seen = [one async for one in events(answer)]
        assert seen[-1].kind == "closed"
        assert seen[-1].data == {"reason": "too_slow"}
        last = seen[-2].id
        async with opened(house, "/api/v1/events", last_id=last) as answer:
            assert (await some_of(answer, 1))[0].id != last

    run(body)


def test_streams_and_waits_end_at_once_when_the_orchestrator_stops(caplog: pytest.LogCaptureFixture) -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", {"sleep": 60})
        waits = [
            asyncio.create_task(house.get(f"/api/v1/jobs/{job['id']}?wait=50")),
            asyncio.create_task(house.post("/api/v1/jobs:wait", {"ids": [job["id"]], "timeout": 50})),
            asyncio.create_task(
                house.post("/api/v1/jobs?wait=50", {"blueprint": "script", "input": {"sleep": 9}})
            ),
        ]
        async with (
            opened(house, "/api/v1/events") as wide,
            opened(house, f"/api/v1/jobs/{job['id']}/events") as narrow,
        ):
            await some_of(narrow, 2)
            await asyncio.sleep(0.1)
            watch = Stopwatch()
            await house.director.stop(0.0)
            assert watch.elapsed_s() < 1.5
            answers = await asyncio.gather(*waits)
            assert [answer.status for answer in answers] == [200, 200, 202]
            assert answers[1].json["pending"] == [job["id"]]
            for stream in (wide, narrow):
                try:
                    await stream.read()
                except ClientPayloadError:
                    raise AssertionError("cut instead of ended") from None

    with caplog.at_level(logging.WARNING, "regista.api"):
        run(body)
    assert caplog.records == []
