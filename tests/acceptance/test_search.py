"""Search, counts and export at a running server, on every store."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest

from regista import ActionFactory, JobContext, StateMachineBlueprint
from regista.client import Client
from regista.model import EventType
from regista.storage.redis.store import RedisStorage
from regista.testing.conformance.history import START, make_entry, make_summary
from tests.acceptance.any_store import history, redis_server, storage
from tests.acceptance.serving import House, serving
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer

__all__ = ["history", "redis_server", "storage"]

#: As printed in the source document 004, section 6.5.2.
PRINTED = (
    "WorkflowType = 'TranscodeWorkflow' \n"
    "  AND AssetType = 'video' \n"
    "  AND ExecutionStatus = 'Failed'\n"
    "  AND StartTime > '2024-12-01'\n"
    "  ORDER BY StartTime DESC"
)
DECLARED = {
    "AssetId": "Keyword",
    "AssetType": "Keyword",
    "FileName": "Text",
    "FileSizeBytes": "Long",
    "Hd": "Bool",
    "Tags": "KeywordList",
    "Due": "Datetime",
}


def media(name: str = "TranscodeWorkflow") -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint(name, search_attributes=DECLARED)

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        wish = context.initial_data.get("set")
        if wish is not None:
            actions.set_search_attributes(wish)
        match context.initial_data.get("ends", "done"):
            case "fail":
                actions.fail("broken file")
            case "wait":
                actions.sleep(600, then="done")
            case _:
                actions.transition_to("done")

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        pass

    return blueprint


async def found(house: House, query: str, token: str = "t-ada", more: str = "") -> list[str]:
    answer = await house.get(f"/api/v1/jobs?query={quote(query)}{more}", token=token)
    assert answer.status == 200, answer.body
    return [item["id"] for item in answer.json["items"]]


async def made(house: House, ends: str, token: str = "t-ada", **attributes: Any) -> str:
    job = await house.submit("TranscodeWorkflow", {"ends": ends}, search_attributes=attributes, token=token)
    await house.director.wait(job["id"], 0.0 if ends == "wait" else 5.0)
    job_id: str = job["id"]
    return job_id


async def test_jobs_are_found_at_once_and_after_they_are_recorded(storage: str, history: str) -> None:
    async with serving(media(), storage=storage, history_database_uri=history) as house:
        broken = await made(house, "fail", AssetType="video", AssetId="a-1", FileSizeBytes=5)
        other = await made(house, "fail", AssetType="image", AssetId="a-2", FileName="Summer Holiday")
        ended = await made(house, "done", AssetType="video", AssetId="a-1", Tags=["x", "y"], Hd=True)
        alive = await made(house, "wait", AssetType="video", Due="2026-05-01T12:00:00+02:00")
        for recorded in (False, True):
            if recorded:
                await house.director.recorder.drain()
            assert await found(house, PRINTED) == [broken]
            assert await found(house, "AssetId = 'a-1' ORDER BY StartTime") == [broken, ended]
            assert await found(house, "AssetId LIKE 'a-%' AND ExecutionStatus != 'Failed'") == [ended]
            assert await found(house, "FileName = 'holiday'") == [other]
            assert await found(house, "Tags = 'y' AND Hd = true") == [ended]
            assert await found(house, "FileSizeBytes BETWEEN 1 AND 5") == [broken]
            assert await found(house, "ExecutionStatus = 'Running'") == [alive]
            assert await found(house, "CloseTime IS NULL AND Due = '2026-05-01T10:00:00Z'") == [alive]
            assert await found(house, "ExecutionDuration < '1h' AND State = 'done'") == [ended]
            both = f"JobId IN ('{alive}', '{other}')"
            assert await found(house, both, more="&status=failed") == [other]
        counted = (await house.get("/api/v1/jobs:count?group_by=ExecutionStatus")).json
        assert counted["count"] == 4
        groups = {group["value"]: group["count"] for group in counted["groups"]}
        assert groups == {"failed": 2, "finished": 1, "waiting_for_timer": 1}
        assert {"mean", "p50", "p95"} == set(counted["duration"])


async def test_a_client_finds_only_its_own_whatever_it_asks(storage: str, history: str) -> None:
    async with serving(media(), storage=storage, history_database_uri=history) as house:
        mine = await made(house, "done", AssetId="a")
        theirs = await made(house, "done", "t-bob", AssetId="a")
        for recorded in (False, True):
            if recorded:
                await house.director.recorder.drain()
            for query in (
                "AssetId = 'a'",
                "AssetId = 'a' OR ClientName = 'bob'",
                "NOT ClientName = 'ada'",
                "",
            ):
                assert theirs not in await found(house, query)
            assert await found(house, "AssetId = 'a'", "t-ops") == [theirs, mine]
            assert await found(house, "ClientName = 'bob'", "t-ops") == [theirs]
            counted = await house.get("/api/v1/jobs:count?group_by=ClientName")
            assert [group["value"] for group in counted.json["groups"]] == ["ada"]
            exported = (await house.get("/api/v1/jobs:export")).body.decode()
            assert mine in exported
            assert theirs not in exported


async def test_an_attribute_that_does_not_fit_is_refused_and_says_what_was_expected(
    storage: str, history: str
) -> None:
    wrong = {
        "FileSizeBytes": ("12", "expected a 64-bit int"),
        "AssetId": ("x" * 256, "at most 255 characters"),
        "Hd": (1, "expected true or false"),
        "Due": ("tomorrow", "a time with a zone"),
        "Tags": ("x", "a list"),
        "AssetIdd": ("x", "did you mean AssetId?"),
    }

    async with serving(media(), storage=storage, history_database_uri=history) as house:
        for name, (value, words) in wrong.items():
            body = {"blueprint": "TranscodeWorkflow", "search_attributes": {name: value}}
            answer = await house.post("/api/v1/jobs", body)
            assert (answer.status, answer.code) == (400, "bad_search_attribute"), name
            assert words in answer.json["detail"]
            (item,) = (await house.post("/api/v1/jobs:batch", {"jobs": [body]})).json["items"]
            assert item["code"] == "bad_search_attribute"
        job = await house.submit("TranscodeWorkflow", {"set": {"FileSizeBytes": "big"}})
        stuck = await house.director.wait(job["id"], 5.0)
        assert stuck.status == "quarantined"
        assert stuck.error is not None
        assert "'FileSizeBytes': expected a 64-bit int" in stuck.error.message
        set_by_handler = await house.submit("TranscodeWorkflow", {"set": {"FileSizeBytes": 7}})
        await house.director.wait(set_by_handler["id"], 5.0)
        assert await found(house, "FileSizeBytes = 7") == [set_by_handler["id"]]


@pytest.mark.parametrize(
    ("query", "position", "words"),
    [
        ("AssetType = video", 12, "'video'? Text stands in quotes"),
        ("AssetTipe = 'video'", 0, "did you mean AssetType?"),
        ("AssetType LIKE '%video'", 15, "no other LIKE is known"),
        ("AssetType LIKE 'v_deo%'", 15, "no other LIKE is known"),
        ("FileSizeBytes = 'big'", 16, "a number for FileSizeBytes"),
        ("StartTime > 'soon'", 12, "a time in quotes"),
        ("ExecutionStatus = 'Fialed'", 18, "did you mean failed?"),
        ("ExecutionStatus > 'Failed'", 0, "=, != and IN"),
        ("FileName STARTS_WITH 'a'", 0, "a Keyword for STARTS_WITH"),
        ("AssetType = 'video' ORDER BY FileName", 29, "can be sorted by"),
        ("AssetType = 'vid", 12, "a closing '"),
        ("(AssetType = 'video'", 20, "expected )"),
        ("State = 'a' State = 'b'", 12, "AND, OR"),
    ],
)
async def test_a_query_that_cannot_be_understood_says_where_and_why(
    query: str, position: int, words: str
) -> None:
    async with serving(media()) as house:
        for path in ("/api/v1/jobs", "/api/v1/jobs:count", "/api/v1/jobs:export"):
            answer = await house.get(f"{path}?query={quote(query)}")
            assert (answer.status, answer.code) == (400, "bad_query")
            assert answer.json["position"] == position
            assert words in answer.json["detail"]
            assert {"expected", "found", "hint"} <= set(answer.json)


@pytest.mark.parametrize("evil", ["'; DROP TABLE jobs; --", '" OR 1=1', "\\' OR 'a' = 'a", "%' OR '1"])
async def test_an_attempt_at_injection_is_data(storage: str, history: str, evil: str) -> None:
    async with serving(media(), storage=storage, history_database_uri=history) as house:
        harmless = await made(house, "done", AssetId="harmless")
        job = await made(house, "done", AssetId=evil)
        quoted = "'" + evil.replace("\\", "\\\\").replace("'", "''") + "'"
        for _ in range(2):
            assert await found(house, f"AssetId = {quoted}") == [job]
            assert await found(house, f"AssetId STARTS_WITH {quoted}") == [job]
            assert await found(house, f"AssetId != {quoted}") == [harmless]
            await house.director.recorder.drain()


async def test_pages_lead_through_everything_once_and_belong_to_their_query(
    storage: str, history: str
) -> None:
    async with serving(media(), storage=storage, history_database_uri=history) as house:
        ids = [await made(house, "done", AssetId=f"a-{n % 3}") for n in range(7)]
        await house.director.recorder.drain()
        ids += [await made(house, "done", AssetId="a-0")]
        query = "AssetId STARTS_WITH 'a-' ORDER BY AssetId, StartTime DESC"
        path = f"/api/v1/jobs?limit=3&query={quote(query)}"
        seen: list[str] = []
        page = (await house.get(path)).json
        token = page["next"]
        while True:
            seen += [item["id"] for item in page["items"]]
            if page["next"] is None:
                break
            page = (await house.get(f"{path}&next={page['next']}")).json
        groups = [[ids[7], ids[6], ids[3], ids[0]], [ids[4], ids[1]], [ids[5], ids[2]]]
        assert seen == [one for group in groups for one in group]
        other = f"/api/v1/jobs?query={quote(query.replace('DESC', 'ASC'))}&next={token}"
        for stranger in (other, f"/api/v1/jobs?next={token}", f"{path}&status=failed&next={token}"):
            answer = await house.get(stranger)
            assert (answer.status, answer.code) == (400, "bad_parameter")


async def test_an_export_has_every_job_and_event_and_says_when_it_is_over(storage: str, history: str) -> None:
    async with serving(media(), storage=storage, history_database_uri=history) as house:
        ids = [await made(house, "fail" if n == 1 else "done", AssetId=f"a-{n}") for n in range(3)]
        await house.director.recorder.drain()
        ids.append(await made(house, "done"))
        async with Client(house.url, "t-ada") as client:
            lines = [json.loads(line) async for line in client.export("ORDER BY StartTime")]
            failed = [json.loads(line) async for line in client.export("ExecutionStatus = 'Failed'")]
            counted = await client.count("AssetId IS NOT NULL", "ExecutionStatus")
            assert [job.id async for job in client.jobs(query="AssetId = 'a-1'")] == [ids[1]]
        assert [line["job"]["id"] for line in lines if "job" in line] == ids
        events = [line["event"] for line in lines if "event" in line]
        assert lines[-1] == {"end": {"jobs": 4, "events": len(events)}}
        for job_id in ids:
            told = (await house.get(f"/api/v1/jobs/{job_id}/history?format=jsonl")).body.splitlines()
            assert [json.loads(line) for line in told] == [e for e in events if e["job_id"] == job_id]
            page = (await house.get(f"/api/v1/jobs/{job_id}/history")).json["items"]
            assert page == [json.loads(line) for line in told]
        assert [line["job"]["id"] for line in failed if "job" in line] == [ids[1]]
        assert counted["count"] == 3


async def test_a_long_story_is_exported_whole() -> None:
    async with serving(media()) as house:
        row = make_summary("long", "finished", client="ada", finished_at=START)
        entries = [make_entry(n + 1, "long", n * 13 + 1, 13, row) for n in range(100)]
        await house.director.recorder.stop()
        await house.director.history.record(entries)
        lines = (await house.get("/api/v1/jobs:export?query=JobId%20=%20'long'")).body.splitlines()
        assert [json.loads(line)["event"]["seq"] for line in lines[1:-1]] == list(range(1, 1301))
        assert json.loads(lines[-1]) == {"end": {"jobs": 1, "events": 1300}}


async def test_a_key_that_redis_has_forgotten_tells_its_new_story_whole(
    redis_server: RedisServer, history_server: PostgresServer
) -> None:
    """The store forgets an ended job; the same key makes another job of the same id, whose story counts."""
    assert redis_server.ask("FLUSHALL") == "+OK"

    store = RedisStorage(redis_server.url, ended_ttl_s=0.3)
    uri = history_server.place()
    async with serving(media(), storage=store, history_database_uri=uri) as house:
        wish: dict[str, Any] = {"idempotency_key": "k", "search_attributes": {"AssetId": "a"}}
        first = await house.submit("TranscodeWorkflow", {"ends": "done"}, **wish)
        await house.director.wait(first["id"], 5.0)
        old = await house.director.events(first["id"])
        await house.director.recorder.drain()
        await asyncio.sleep(0.4)
        again = await house.submit("TranscodeWorkflow", {"ends": "wait"}, **wish)
        assert again["id"] == first["id"]
        for recorded in (False, True):
            if recorded:
                await house.director.recorder.drain()
            told = await house.director.events(first["id"])
            assert [event.seq for event in told] == list(range(1, len(told) + 1))
            assert min(event.at for event in told) > max(event.at for event in old)
            assert EventType.JOB_FINISHED not in {event.type for event in told}
            assert await found(house, "AssetId = 'a' AND ExecutionStatus = 'Running'") == [first["id"]]
            assert await found(house, "ExecutionStatus = 'Completed'") == []
