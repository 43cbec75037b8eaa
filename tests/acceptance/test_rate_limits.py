"""How often: each kind of request by whoever sends it, told in headers, one truth over several instances."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from regista import Config, OrchestratorEngine, Worker
from regista.workers.protocol import frames
from tests.acceptance.any_store import redis_server, storage
from tests.acceptance.serving import Answer, House, serving
from tests.acceptance.stream_kit import connected
from tests.conftest import require_binary
from tests.redis_server import RedisServer
from tests.support import one_task

__all__ = ["redis_server", "storage"]

WORKER = {"X-Worker-Token": "t-worker"}
REGISTRATION = {"worker_id": "w1", "worker_type": "t", "supported_skills": ["x"], "resources": {}}


def run(body: Callable[[House], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        async with serving(one_task(), **settings) as house:
            await body(house)

    asyncio.run(main())


async def answers(ask: Callable[[], Coroutine[Any, Any, Answer]], times: int) -> list[Answer]:
    return [await ask() for _ in range(times)]


def check_refusal(answer: Answer, context: str, limit: int) -> None:
    assert (answer.status, answer.code) == (429, "rate_limited"), answer.body
    assert answer.json["context"] == context
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.headers["RateLimit-Limit"] == str(limit)
    assert answer.headers["RateLimit-Remaining"] == "0"
    assert int(answer.headers["RateLimit-Reset"]) >= 1
    assert answer.headers["RateLimit-Policy"].startswith(f'"{context}";q={limit};w=')
    assert answer.headers["RateLimit"].startswith(f'"{context}";r=0;t=')


def test_a_client_that_submits_too_much_is_told_when_to_come_back(storage: str) -> None:
    async def body(house: House) -> None:
        async def submit(token: str = "t-ada") -> Answer:
            return await house.post("/api/v1/jobs", {"blueprint": "script"}, token=token)

        got = await answers(submit, 7)
        assert [one.status for one in got] == [202] * 5 + [429] * 2
        assert [one.headers["RateLimit-Remaining"] for one in got[:5]] == ["4", "3", "2", "1", "0"]
        check_refusal(got[5], "submit", 5)
        # Nobody else is concerned, and nothing else.
        assert (await submit("t-bob")).status == 202
        assert (await house.get("/api/v1/blueprints")).status == 200

    run(body, storage=storage, rate_limits={"submit": "5/h"})


def test_whoever_waits_as_told_comes_through(storage: str) -> None:
    async def body(house: House) -> None:
        while (answer := await house.get("/api/v1/blueprints")).status == 200:
            pass
        await asyncio.sleep(int(answer.headers["Retry-After"]))
        assert (await house.get("/api/v1/blueprints")).status == 200

    run(body, storage=storage, rate_limits={"read": "20/s"})


def test_a_batch_counts_as_the_jobs_that_it_holds() -> None:
    async def body(house: House) -> None:
        batch = {"jobs": [{"blueprint": "script"}] * 4}
        got = await answers(lambda: house.post("/api/v1/jobs:batch", batch), 3)
        assert [one.status for one in got] == [200, 200, 429]
        assert [one.headers["RateLimit-Remaining"] for one in got] == ["6", "2", "1"]

    run(body, rate_limits={"submit": "10/h"})


def test_waiting_for_jobs_is_looking_and_not_submitting() -> None:
    async def body(house: House) -> None:
        got = await answers(lambda: house.post("/api/v1/jobs:wait", {"ids": ["x"]}), 3)
        assert [one.status for one in got] == [200, 200, 429]
        check_refusal(got[2], "read", 2)

    run(body, rate_limits={"submit": "1/h", "read": "2/h"})


def test_a_client_has_limits_of_its_own_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text('[slow]\ntoken = "t-slow"\nrate_limits = { read = "1/h" }\n[quick]\ntoken = "t-quick"\n')

    async def body(house: House) -> None:
        slow = await answers(lambda: house.get("/api/v1/jobs", token="t-slow"), 2)
        assert [one.status for one in slow] == [200, 429]
        quick = await answers(lambda: house.get("/api/v1/jobs", token="t-quick"), 20)
        assert {one.status for one in quick} == {200}
        file.write_text('[slow]\ntoken = "t-slow"\nrate_limits = { read = "off" }\n')
        assert house.director.reload()
        unlimited = await house.get("/api/v1/jobs", token="t-slow")
        assert unlimited.status == 200
        assert "RateLimit" not in unlimited.headers

    run(body, clients_config_path=str(file))


@pytest.mark.parametrize(
    ("context", "method", "path", "sent"),
    [
        ("heartbeat", "PATCH", "/_worker/workers/w1", {"status": "idle"}),
        ("result", "POST", "/_worker/tasks/result", {"worker_id": "w1", "job_id": "x", "task_id": "x_1_0-1"}),
        ("event", "POST", "/_worker/events", {"worker_id": "w1", "event_type": "greeting"}),
        ("empty_poll", "GET", "/_worker/workers/w1/tasks/next?timeout=0", None),
    ],
)
def test_each_kind_of_a_workers_words_is_counted_by_worker(
    context: str, method: str, path: str, sent: Any, storage: str
) -> None:
    async def body(house: House) -> None:
        async def say(who: str) -> Answer:
            said = sent and {**sent, **({"worker_id": who} if "worker_id" in sent else {})}
            return await house.call(method, path.replace("w1", who), said, token=None, headers=WORKER)

        for who in ("w1", "w2"):
            answer = await house.post(
                "/_worker/workers/register", {**REGISTRATION, "worker_id": who}, token=None, headers=WORKER
            )
            assert answer.status == 200
        got = [(await say("w1")) for _ in range(7)]
        refused = next(one for one in got if one.status == 429)
        assert got.index(refused) in (4, 5)  # the registration is a sign of life, too
        check_refusal(refused, context, 5)
        assert (await say("w2")).status < 300

    run(body, storage=storage, rate_limits={context: "5/h"})


def test_a_worker_that_waits_for_its_tasks_is_never_limited() -> None:
    async def body(house: House) -> None:
        await house.post("/_worker/workers/register", REGISTRATION, token=None, headers=WORKER)
        for _ in range(8):
            got = await house.get("/_worker/workers/w1/tasks/next?timeout=0.3", token=None, headers=WORKER)
            assert got.status == 204
        assert got.headers["RateLimit-Limit"] == "4"

    run(body, rate_limits={"empty_poll": "4/s"})


def test_the_public_is_counted_by_address() -> None:
    async def body(house: House) -> None:
        got = await answers(lambda: house.get("/_public/status", token=None), 4)
        assert [one.status for one in got] == [200, 200, 200, 429]
        check_refusal(got[3], "public", 3)
        # A forwarded address of a stranger changes nothing; what needs a token is another matter.
        forged = await house.get("/_public/status", token=None, headers={"X-Forwarded-For": "10.9.8.7"})
        assert forged.status == 429
        assert (await house.get("/api/v1/blueprints")).status == 200

    run(body, rate_limits={"public": "3/h"})


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/_worker/workers/w1/tasks/next?timeout=0"])
def test_whoever_guesses_tokens_is_not_listened_to_any_more(path: str) -> None:
    async def body(house: House) -> None:
        async def guess(token: str) -> Answer:
            return await house.get(path, token=token, headers={"X-Worker-Token": token})

        good = "t-worker" if "_worker" in path else "t-ada"
        got = [await guess(f"guess-{number}") for number in range(5)]
        assert [one.status for one in got] == [401, 401, 401, 429, 429]
        check_refusal(got[3], "auth", 3)
        # Not even a right guess is told from a wrong one now.
        assert (await guess(good)).status == 429

    run(body, rate_limits={"auth": "3/h"})


def test_a_neighbour_with_a_good_token_is_not_locked_out_by_a_broken_one(storage: str) -> None:
    async def body(house: House) -> None:
        async def register(token: str, who: str) -> int:
            headers = {"X-Worker-Token": token}
            said = {**REGISTRATION, "worker_id": who}
            return (await house.post("/_worker/workers/register", said, token=None, headers=headers)).status

        assert await register("t-worker", "healthy") == 200
        assert (await house.get("/api/v1/blueprints")).status == 200
        statuses = [await register("wrong", "broken") for _ in range(6)]
        assert statuses[0] == 401
        assert statuses[-1] == 429
        assert await register("t-worker", "healthy") == 200
        assert (await house.get("/api/v1/blueprints")).status == 200
        # Nor is one that was never here before: the same wrong token again is no new guess.
        assert (await house.get("/api/v1/blueprints", token="t-bob")).status == 200

    run(body, storage=storage, rate_limits={"auth": "3/h"})


def test_a_broken_neighbour_does_not_keep_a_worker_from_renewing_its_login() -> None:
    async def body(house: House) -> None:
        async def ask(path: str, said: dict[str, str], token: str | None = None) -> Answer:
            headers = {} if token is None else {"X-Worker-Token": token}
            return await house.post(f"/_worker/auth/{path}", said, token=None, headers=headers)

        login = (await ask("token", {"worker_id": "w1"}, "t-worker")).json
        broken = [(await ask("token", {"worker_id": "w2"}, "wrong")).status for _ in range(6)]
        assert broken == [401] * 3 + [429] * 3
        assert (await ask("token/refresh", {"refresh_token": login["refresh_token"]})).status == 200

    run(body, rate_limits={"auth": "3/h"})


def test_each_guess_at_a_refresh_token_counts_whatever_good_token_comes_with_it() -> None:
    async def body(house: House) -> None:
        assert (
            await house.post("/_worker/workers/register", REGISTRATION, token=None, headers=WORKER)
        ).status == 200
        said = [{"refresh_token": f"rr.w1.x.{number}"} for number in range(5)]
        path = "/_worker/auth/token/refresh"
        got = [await house.post(path, one, token=None, headers=WORKER) for one in said]
        assert [one.status for one in got] == [401, 401, 401, 429, 429]

    run(body, rate_limits={"auth": "3/h"})


def test_a_known_token_in_one_header_frees_no_guesses_in_another() -> None:
    async def body(house: House) -> None:
        async def poll(token: str) -> int:
            headers = {"X-Client-Token": "x", "X-Worker-Token": token}
            path = "/_worker/workers/w1/tasks/next?timeout=0"
            return (await house.get(path, token=None, headers=headers)).status

        headers = {"X-Client-Token": "x", **WORKER}
        assert (
            await house.post("/_worker/workers/register", REGISTRATION, token=None, headers=headers)
        ).status == 200
        assert [await poll(f"guess-{number}") for number in range(5)] == [401, 401, 401, 429, 429]

    run(body, rate_limits={"auth": "3/h"})


def test_a_file_whose_name_looks_like_a_workers_path_makes_no_token_known(tmp_path: Path) -> None:
    async def body(house: House) -> None:
        job = (await house.submit("script", {}))["id"]
        link = (await house.post(f"/api/v1/jobs/{job}/files", {"name": "a/_worker/b"})).json["url"]
        strange = {"X-Worker-Token": "strange"}
        async with house.session.put(URL(link, encoded=True), data=b"x", headers=strange) as stored:
            assert stored.status < 300
        tokens = ["guess-1", "guess-2", "guess-3", "strange"]
        path = "/_worker/workers/w1/tasks/next"
        got = [await house.get(path, token=None, headers={"X-Worker-Token": token}) for token in tokens]
        assert [one.status for one in got] == [401, 401, 401, 429]

    run(body, payloads=f"file:{tmp_path}", rate_limits={"auth": "3/h"})


def test_guesses_at_an_approval_count_as_failures_too() -> None:
    async def body(house: House) -> None:
        async def guess() -> Answer:
            path = "/_public/webhooks/approval/nothing?token=guess"
            return await house.post(path, {"decision": "approve"}, token=None)

        assert [one.status for one in await answers(guess, 3)] == [403, 403, 403]
        assert (await house.get("/api/v1/jobs", token="guess")).status == 429

    run(body, rate_limits={"auth": "3/h"})


def test_too_many_guesses_at_a_public_secret_are_refused() -> None:
    async def body(house: House) -> None:
        approval = "/_public/webhooks/approval/nothing?token=guess"
        link = "/_public/files/job/a.txt?expires=99999999999&signature=guess"

        async def decide() -> int:
            return (await house.post(approval, {"decision": "approve"}, token=None)).status

        async def download() -> int:
            return (await house.get(link, token=None)).status

        assert [await decide() for _ in range(5)] == [403, 403, 403, 429, 429]
        assert await download() == 429
        # What contains no secret answers as ever.
        assert (await house.get("/_public/live", token=None)).status == 200

    run(body, rate_limits={"auth": "3/h"})


def test_renewing_a_login_counts_as_a_heartbeat() -> None:
    async def body(house: House) -> None:
        issued = await house.post("/_worker/auth/token", {"worker_id": "w1"}, token=None, headers=WORKER)
        token = issued.json["refresh_token"]
        statuses = []
        for _ in range(8):
            answer = await house.post("/_worker/auth/token/refresh", {"refresh_token": token}, token=None)
            statuses.append(answer.status)
            token = answer.json.get("refresh_token", token)
        assert statuses == [200] * 5 + [429] * 3

    run(body, rate_limits={"heartbeat": "5/h"})


def test_the_defaults_let_a_busy_client_and_a_busy_worker_do_what_they_do() -> None:
    async def body(house: House) -> None:
        await house.post("/_worker/workers/register", REGISTRATION, token=None, headers=WORKER)
        batch = {"jobs": [{"blueprint": "script"}] * 500}
        for _ in range(3):
            assert (await house.post("/api/v1/jobs:batch?return=ids", batch)).status == 200
        ask = [house.get("/api/v1/jobs?limit=1") for _ in range(60)]
        assert {one.status for one in await asyncio.gather(*ask)} == {200}

    run(body)


async def test_two_orchestrators_on_one_store_count_as_one(redis_server: RedisServer) -> None:
    assert redis_server.ask("FLUSHALL") == "+OK"
    limit = 60

    async def one(name: str) -> tuple[OrchestratorEngine, str]:
        config = Config(
            instance_id=name, client_token="t", worker_token="t-worker", rate_limits={"read": f"{limit}/h"}
        )
        director = OrchestratorEngine(redis_server.url, config)
        return director, (await director.serve(port=0)).url

    served = [await one(f"instance-{number}") for number in range(2)]
    statuses: list[int] = []
    async with aiohttp.ClientSession(headers={"X-Client-Token": "t"}) as http:
        for number in range(100):
            async with http.get(f"{served[number % 2][1]}/api/v1/blueprints") as answer:
                statuses.append(answer.status)
    for director, _ in served:
        await director.stop(0.0)
    allowed = statuses.count(200)
    assert limit - 12 <= allowed <= limit + 12, statuses
    assert statuses.count(429) == 100 - allowed


async def test_a_request_is_answered_though_the_store_of_the_limits_is_away(tmp_path: Path) -> None:
    with RedisServer(require_binary("redis-server"), appendonly=False) as server:
        config = Config(instance_id="lonely", client_token="t", worker_token="t-worker")
        director = OrchestratorEngine(server.url, config)
        site = await director.serve(port=0)
        async with aiohttp.ClientSession() as http:
            server.stop()
            began = time.monotonic()
            async with http.get(f"{site.url}/_public/status") as answer:
                assert answer.status in (200, 503)
            assert time.monotonic() - began < 3
        await director.stop(0.0)


def test_a_polling_worker_of_ours_that_is_told_to_wait_goes_on_where_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = Worker("crew", concurrency=4)

    @worker.task("work")
    async def work(params: dict[str, Any]) -> dict[str, Any]:
        return {"done": True}

    async def body(house: House) -> None:
        settings: dict[str, Any] = {"token": "t-worker", "enable_websockets": False, "poll_timeout_s": 1.0}
        async with connected(worker, house.url, **settings):
            jobs = [await house.submit("script") for _ in range(4)]
            for job in jobs:
                ended = (await house.get(f"/api/v1/jobs/{job['id']}?wait=8")).json
                assert ended["status"] == "finished"

    run(body, rate_limits={"result": "1/s"})
    assert not [one for one in caplog.records if "connecting again" in one.getMessage()]


def test_a_stream_over_which_too_much_comes_is_read_slowly_and_never_refused() -> None:
    async def body(house: House) -> None:
        registered = await house.post("/_worker/workers/register", REGISTRATION, token=None, headers=WORKER)
        async with house.session.ws_connect(
            f"{house.url}/_worker/ws/w1", protocols=[frames.PROTOCOL], headers=WORKER
        ) as ws:
            await ws.send_bytes(frames.encode([frames.HelloFrame(registered.json["session"], [])]))
            began = time.monotonic()
            for _ in range(4):
                await ws.send_bytes(frames.encode([frames.HeartbeatFrame([])]))
            heard = 0
            async with asyncio.timeout(8):
                while heard < 4:
                    answers = frames.decode_to_worker((await ws.receive()).data)
                    heard += sum(isinstance(frame, frames.HeartbeatAckFrame) for frame in answers)
            assert time.monotonic() - began > 0.9
            assert not ws.closed

    run(body, rate_limits={"result": "2/h"})
