"""A server through a hostile session: its whole log shows none of the secrets that were planted."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from regista.workers.protocol import frames
from tests.acceptance.processes import House

APP = """
from regista import StateMachineBlueprint, Worker

worker = Worker("crew")
work, picky = StateMachineBlueprint("work"), StateMachineBlueprint("picky")


@work.handler_for("start", is_start=True)
def start(context, actions):
    actions.dispatch_task("do_it", context.initial_data, transitions={"success": "done"})


@work.handler_for("done", is_end=True)
def done(context, actions):
    actions.set_result(dict(context.state_history))


@picky.handler_for("start", is_start=True, is_end=True)
def choose(context, actions):
    try:
        int(context.initial_data["card"])
    except ValueError as error:
        raise RuntimeError(f"cannot pay with {context.initial_data}") from error
"""

#: Where it is planted → what must not be seen.
SECRETS = {
    "client": "planted-client-token-7f3a",
    "worker": "planted-worker-token-91bc",
    "approval": "planted-approval-secret-55",
    "signing": "planted-signing-key-c0ffee",
    "wrong": "planted-wrong-token-1234",
    "address": "planted-in-address-8888",
    "input": "planted-card-4111-1111",
    "data": "planted-result-of-work-77",
    "message": "planted-in-a-bad-message",
    "hook": "planted-password-of-hook",
}


@pytest.fixture(params=["json", "pretty"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path, APP)
    house.set(
        CLIENT_TOKEN=SECRETS["client"],
        WORKER_TOKEN=SECRETS["worker"],
        REGISTA_APPROVAL_SECRET=SECRETS["approval"],
        ORCHESTRATOR_SECRET_KEY=SECRETS["signing"],
        LOG_LEVEL="DEBUG",
    )
    house.serve(*(["--json"] if request.param == "json" else []), "--storage", "memory")
    yield house
    house.close()


async def ask(http: aiohttp.ClientSession, method: str, path: str, body: Any = None, **headers: str) -> int:
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    async with http.request(method, path, data=data, headers=headers) as answer:
        await answer.read()
        return answer.status


def of_client(token: str = SECRETS["client"]) -> dict[str, str]:
    return {"X-Client-Token": token}


def of_worker(token: str = SECRETS["worker"]) -> dict[str, str]:
    return {"X-Worker-Token": token}


async def wrong_tokens(http: aiohttp.ClientSession) -> None:
    wrong = SECRETS["wrong"]
    basic = "Basic " + base64.b64encode(wrong.encode()).decode()
    for headers in (
        of_client(wrong),
        of_worker(wrong),
        {"Authorization": f"Bearer {wrong}"},
        {"Authorization": basic},
    ):
        assert await ask(http, "GET", "/api/v1/jobs", **headers) == 401
        assert await ask(http, "GET", "/_worker/workers/w/tasks/next?timeout=0", **headers) == 401
    path = f"/_public/webhooks/approval/none?token={SECRETS['address']}"
    assert await ask(http, "POST", path, {"decision": "yes"}) == 403
    assert await ask(http, "GET", f"/api/v1/nothing?token={SECRETS['address']}", **of_client()) == 404


async def work(http: aiohttp.ClientSession) -> None:
    said = {"worker_id": "w", "worker_type": "t", "supported_skills": ["do_it"], "resources": {}}
    assert await ask(http, "POST", "/_worker/workers/register", said, **of_worker()) == 200
    order = {"blueprint": "work", "input": {"card": SECRETS["input"]}}
    assert await ask(http, "POST", "/api/v1/jobs", order, **of_client()) == 202
    async with http.get("/_worker/workers/w/tasks/next?timeout=5", headers=of_worker()) as answer:
        task = await answer.json()
    assert task["params"] == order["input"]
    told = {"worker_id": "w", "job_id": task["job_id"], "task_id": task["task_id"], "status": "success"}
    result = told | {"data": {"card": SECRETS["data"]}}
    assert await ask(http, "POST", "/_worker/tasks/result", result, **of_worker()) == 200
    late = told | {"data": {"card": SECRETS["data"]}, "task_id": task["task_id"] + "9"}
    assert await ask(http, "POST", "/_worker/tasks/result", late, **of_worker()) < 500
    picky = {"blueprint": "picky", "input": {"card": SECRETS["input"]}}
    assert await ask(http, "POST", "/api/v1/jobs?wait=1", picky, **of_client()) in (200, 202)
    hook = f"http://user:{SECRETS['hook']}@127.0.0.1:1/?token={SECRETS['hook']}"
    assert await ask(http, "POST", "/api/v1/jobs", order | {"webhook_url": hook}, **of_client()) < 500


async def bad_messages(http: aiohttp.ClientSession) -> None:
    planted = SECRETS["message"]
    for body in (
        planted.encode(),
        b'{"' + planted.encode() + b'": 1}',
        json.dumps({"blueprint": planted}).encode(),
    ):
        assert 400 <= await ask(http, "POST", "/api/v1/jobs", body, **of_client()) < 500
        for path in ("workers/register", "tasks/result", "events"):
            assert 400 <= await ask(http, "POST", f"/_worker/{path}", body, **of_worker()) < 500
    for protocols in ([], [frames.PROTOCOL]):
        async with http.ws_connect("/_worker/ws/w", protocols=protocols, headers=of_worker()) as ws:
            await ws.send_bytes(planted.encode())
            await ws.send_str(json.dumps({"event_type": "progress", "payload": planted}))
            await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(30)
def test_no_secret_of_a_hostile_session_is_in_the_log(house: House) -> None:
    async def main() -> None:
        async with aiohttp.ClientSession(house.url) as http:
            await wrong_tokens(http)
            await work(http)
            await bad_messages(http)

    asyncio.run(main())
    house.until_logged("handler of state 'start' failed")
    log = house.logs()
    shown = {where for where, secret in SECRETS.items() if secret in log}
    assert shown == set(), log
    assert base64.b64encode(SECRETS["wrong"].encode()).decode() not in log
    assert "RuntimeError: cannot pay with" in log  # what happened is there
    assert "in choose" in log
