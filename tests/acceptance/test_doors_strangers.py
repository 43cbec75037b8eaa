"""Every door, tried by somebody who has no business there."""

import asyncio
import base64
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from regista.api.app import NOUNS
from regista.api.routes import Operation
from regista.blueprint.conditions import Condition
from regista.errors import ConditionError
from regista.workers.protocol import frames
from tests.acceptance.any_store import redis_server, storage
from tests.acceptance.serving import Answer, House, serving
from tests.acceptance.test_jobs import asks
from tests.support import one_task

__all__ = ["redis_server", "storage"]

#: What clients may ask for, all of it: a door that is added later is tried, too.
CLIENTS_DOORS = [one for noun in NOUNS for one in noun if one.kind == "client"]
OF_A_JOB = [one for one in CLIENTS_DOORS if "{job_id}" in one.path]
WORKER = {"X-Worker-Token": "t-worker"}


def run(body: Callable[[House], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        async with serving(one_task(), asks(), **settings) as house:
            await body(house)

    asyncio.run(main())


def path_of(operation: Operation, job_id: str) -> str:
    path = operation.paths()[0].replace("{job_id}", job_id)
    while "{" in path:
        start, _, rest = path.partition("{")
        path = f"{start}x{rest.partition('}')[2]}"
    return path


def a_body(operation: Operation) -> Any:
    """Something that an owner could send."""
    if operation.body is None:
        return None
    if operation.path.endswith("approval"):
        return {"decision": "approve"}
    return {"name": "report.txt"} if operation.path.endswith("files") else {}


async def say(house: House, path: str, said: Any, method: str = "POST", **headers: str) -> Answer:
    return await house.call(method, path, said, token=None, headers=WORKER | headers)


async def join(house: House, *names: str) -> None:
    for name in names:
        said = {"worker_id": name, "worker_type": "t", "supported_skills": ["work"], "resources": {}}
        assert (await say(house, "/_worker/workers/register", said)).status == 200


async def take(house: House, worker: str) -> Any:
    answer = await say(house, f"/_worker/workers/{worker}/tasks/next?timeout=5", None, "GET")
    assert answer.status == 200
    return answer.json


# -- clients -----------------------------------------------------------------------------------------


def test_no_door_of_clients_opens_without_a_token_or_with_a_wrong_one() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script")
        for operation in CLIENTS_DOORS:
            path = path_of(operation, job["id"])
            for headers in (
                {},
                {"X-Client-Token": "wrong"},
                {"X-Client-Token": ""},
                {"Authorization": "Bearer wrong"},
                {"Authorization": "Basic " + base64.b64encode(b"ada:t-ada").decode()},
                {"X-Worker-Token": "t-worker"},
                {"Cookie": "X-Client-Token=t-ada"},
            ):
                answer = await house.call(
                    operation.method, path, a_body(operation), token=None, headers=headers
                )
                assert answer.status == 401, (operation.id, headers, answer.body)
                assert answer.code in ("token_missing", "token_unknown")
                assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert (await house.call(operation.method, path + "?token=t-ada", token=None)).status == 401

    run(body, rate_limits={"auth": "off"})


def test_the_job_of_another_client_is_not_there(storage: str, tmp_path: Path) -> None:
    async def body(house: House) -> None:
        job = await house.submit("asks", token="t-bob")
        never = "00000000-0000-7000-8000-000000000000"
        for operation in OF_A_JOB:
            answers = [
                await house.call(operation.method, path_of(operation, one), a_body(operation))
                for one in (job["id"], never)
            ]
            assert [one.status for one in answers] == [404, 404], (operation.id, answers[0].body)
            # Nothing tells the one from the other but the id that was sent.
            theirs, nobodys = (one.body.replace(job["id"].encode(), never.encode()) for one in answers)
            assert theirs == nobodys
        waited = await house.post("/api/v1/jobs:wait", {"ids": [job["id"]], "timeout": 0})
        assert waited.json["items"] == []
        mine = (await house.get(f"/api/v1/jobs/{job['id']}", token="t-bob")).json
        assert mine["status"] == "waiting_for_human"

    run(body, storage=storage, payloads=f"file:{tmp_path / 'files'}")


def test_the_stream_of_a_client_tells_nothing_of_anothers_jobs() -> None:
    async def body(house: House) -> None:
        async with house.session.get(
            f"{house.url}/api/v1/events", headers={"X-Client-Token": "t-ada"}
        ) as mine:
            theirs = await house.submit("script", {"secret": "of-bob"}, token="t-bob")
            own = await house.submit("script", {"secret": "of-ada"})
            seen = b""
            while own["id"].encode() not in seen:
                seen += await asyncio.wait_for(mine.content.readany(), 5)
        assert theirs["id"].encode() not in seen
        assert b"of-bob" not in seen

    run(body)


def test_an_approval_needs_the_token_of_this_question_of_this_job() -> None:
    async def body(house: House) -> None:
        one, other = [await house.submit("asks") for _ in range(2)]
        waiting = (await house.get(f"/api/v1/jobs/{other['id']}")).json["waiting_for"]
        path = f"/_public/webhooks/approval/{one['id']}"
        for query in (
            "",
            "?token=",
            "?token=wrong",
            f"?token={waiting['detail']['token']}",
            "?token=%00",
            "?token=t-ada",
        ):
            answer = await house.post(path + query, {"decision": "approve"}, token=None)
            assert answer.status in (401, 403), query
        assert (await house.get(f"/api/v1/jobs/{one['id']}")).json["status"] == "waiting_for_human"

    run(body)


def test_what_operators_do_is_refused_to_clients() -> None:
    async def body(house: House) -> None:
        await join(house, "w1")
        assert (await house.post("/api/v1/workers/w1/drain", {})).status == 403
        for operation in CLIENTS_DOORS:
            if 403 in operation.problems:
                answer = await house.call(operation.method, path_of(operation, "x"), a_body(operation))
                assert answer.status in (400, 403), (operation.id, answer.body)

    run(body)


# -- workers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, {"X-Worker-Token": "wrong"}, {"X-Client-Token": "t-ops"}])
def test_no_door_of_workers_opens_without_a_workers_token(headers: dict[str, str]) -> None:
    async def body(house: House) -> None:
        said = {
            "worker_id": "w",
            "worker_type": "t",
            "supported_skills": ["work"],
            "job_id": "j",
            "task_id": "j_1-1",
        }
        for method, path in (
            ("POST", "/_worker/workers/register"),
            ("PATCH", "/_worker/workers/w"),
            ("GET", "/_worker/workers/w/tasks/next?timeout=0"),
            ("POST", "/_worker/tasks/result"),
            ("POST", "/_worker/events"),
            ("GET", "/_worker/ws"),
            ("GET", "/_worker/ws/w"),
        ):
            answer = await house.call(method, path, said, token=None, headers=headers)
            assert answer.status == 401, (path, answer.body)
        assert (await house.get("/api/v1/workers")).json["items"] == []

    run(body, rate_limits={"auth": "off"})


def test_the_result_of_another_workers_attempt_is_not_taken(storage: str) -> None:
    async def body(house: House) -> None:
        await join(house, "w1")
        job = await house.submit("script")
        task = await take(house, "w1")
        await join(house, "thief")
        result = {
            "job_id": job["id"],
            "task_id": task["task_id"],
            "status": "success",
            "data": {"x": "stolen"},
        }
        answer = await say(house, "/_worker/tasks/result", result | {"worker_id": "thief"})
        assert (answer.status, answer.json["status"]) == (200, "ignored")
        # Nor in the other's name, where the two names differ.
        forged = await say(
            house, "/_worker/tasks/result", result | {"worker_id": "w1"}, **{"X-Worker-ID": "thief"}
        )
        assert (forged.status, forged.code) == (403, "worker_mismatch")
        right = await say(house, "/_worker/tasks/result", result | {"worker_id": "w1", "data": {"x": "mine"}})
        assert right.json["status"] == "accepted"
        ended = (await house.get(f"/api/v1/jobs/{job['id']}?wait=5")).json
        assert ended["data"] == {"x": "mine"}

    run(body, storage=storage)


def test_progress_and_heartbeats_about_another_workers_attempt_change_nothing() -> None:
    async def body(house: House) -> None:
        await join(house, "w1")
        job = await house.submit("script")
        task = await take(house, "w1")
        await join(house, "thief")
        progress = {
            "worker_id": "thief",
            "event_type": "progress",
            "target_task_id": task["task_id"],
            "target_job_id": job["id"],
            "payload": {"progress": 0.9, "message": "stolen"},
        }
        assert (await say(house, "/_worker/events", progress)).status == 200
        beat = {"status": "busy", "current_tasks": [task["task_id"]]}
        said = await say(house, "/_worker/workers/thief", beat, "PATCH")
        assert task["task_id"] in said.json.get("cancel_task_ids", [task["task_id"]])
        forged = await say(house, "/_worker/workers/w1", beat | {"worker_id": "thief"}, "PATCH")
        assert (forged.status, forged.code) == (403, "worker_mismatch")
        shown = (await house.get(f"/api/v1/jobs/{job['id']}")).body
        assert b"stolen" not in shown
        own = {"job_id": job["id"], "task_id": task["task_id"], "worker_id": "w1", "status": "success"}
        assert (await say(house, "/_worker/tasks/result", own)).json["status"] == "accepted"

    run(body)


def test_a_stream_cannot_speak_for_another_worker() -> None:
    async def body(house: House) -> None:
        await join(house, "w1")
        job = await house.submit("script")
        task = await take(house, "w1")
        said = {"worker_id": "thief", "worker_type": "t", "supported_skills": ["work"], "resources": {}}
        session = (await say(house, "/_worker/workers/register", said)).json["session"]
        async with house.session.ws_connect(
            f"{house.url}/_worker/ws/thief", protocols=[frames.PROTOCOL], headers=WORKER
        ) as ws:
            from regista.model import TaskResult

            theft = TaskResult(
                task_id=task["task_id"],
                job_id=job["id"],
                worker_id="w1",
                status="success",
                data={"x": "stolen"},
            )
            stolen = [frames.HelloFrame(session, [task["task_id"]]), frames.ResultFrame(theft)]
            await ws.send_bytes(msgspec.msgpack.encode(stolen))
            async with asyncio.timeout(5):
                heard = b""
                while b"stale" not in heard and b"mismatch" not in heard:
                    heard += (await ws.receive()).data
        assert (await house.get(f"/api/v1/jobs/{job['id']}")).json["status"] == "waiting_for_worker"

    run(body)


# -- headers and conditions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
        {"X-Client-Cert-CN": "w1", "X-Client-Cert-Verify": "SUCCESS", "X-SSL-Client-CN": "w1"},
        {"X-SSL-Client-Verify": "SUCCESS", "X-SSL-Client-S-DN": "CN=w1", "Ssl-Client-Verify": "SUCCESS"},
        {"X-Forwarded-User": "ops", "X-Remote-User": "ops", "X-Auth-Request-User": "ops"},
        {
            "X-HTTP-Method-Override": "POST",
            "X-Original-URL": "/_public/status",
            "X-Rewrite-URL": "/_public/status",
        },
    ],
)
def test_what_a_stranger_says_a_proxy_had_said_lets_nobody_in(headers: dict[str, str]) -> None:
    async def body(house: House) -> None:
        assert (await house.get("/api/v1/jobs", token=None, headers=headers)).status == 401
        said = {"worker_id": "w1", "worker_type": "t", "supported_skills": ["work"], "resources": {}}
        answer = await house.post("/_worker/workers/register", said, token=None, headers=headers)
        assert answer.status == 401

    run(body)


@pytest.mark.parametrize(
    "text",
    [
        "context.__class__ == 1",
        "context.initial_data.__class__.__mro__ == 1",
        "context.initial_data['__class__'].__subclasses__() == 1",
        "context.state_history.x.__globals__ == 1",
        "().__class__.__bases__[0].__subclasses__() == 1",
        "__import__('os').system('true') == 0",
        "context.initial_data.get('x') == 1",
        "context.client._params == 1",
        "(lambda: 1)() == 1",
        "[x for x in context.initial_data] == 1",
        "f'{context.__class__}' == ''",
        "open('/etc/passwd') == 1",
        "context.initial_data.x == exec('1')",
    ],
)
def test_a_condition_cannot_reach_behind_its_fields(text: str) -> None:
    with pytest.raises(ConditionError):
        Condition.parse(text)
