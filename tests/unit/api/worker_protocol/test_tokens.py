"""Short-lived tokens and one-time passwords over the worker protocol, each door tried on purpose."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from regista.workers.protocol import frames
from regista.workers.protocol.signing import sign
from tests.acceptance.house import OLD, TOKEN, House, Raw, house, raw, until

Scenario = Callable[[House, Raw], Awaitable[None]]
Told = tuple[int, dict[str, Any]]

ISSUE = "/_worker/auth/token"
REFRESH = "/_worker/auth/token/refresh"


def play(scenario: Scenario, **settings: Any) -> None:
    async def run() -> None:
        async with house(**settings) as here, raw(here) as worker:
            await scenario(here, worker)

    asyncio.run(run())


async def ask(
    worker: Raw,
    path: str,
    body: Any = None,
    *,
    token: str | None = TOKEN,
    name: str | None = "raw",
    **more: Any,
) -> Told:
    headers: dict[str, str] = {"X-Worker-Token": token or ""}
    headers |= {} if name is None else {"X-Worker-ID": name}
    headers |= more.pop("headers", {})
    method = more.pop("method", "POST")
    async with worker.http.request(method, path, json=body, headers=headers) as answer:
        return answer.status, await answer.json() or {}


async def login(worker: Raw, name: str = "raw") -> dict[str, Any]:
    status, told = await ask(worker, ISSUE, name=name)
    assert status == 200, told
    return told


async def code(asked: Awaitable[Told]) -> tuple[int, str]:
    status, told = await asked
    return status, told.get("code", "")


async def beat(worker: Raw, token: str, name: str = "raw", **more: Any) -> tuple[int, str]:
    body = {"worker_id": name, "status": "idle", "current_tasks": []}
    return await code(
        ask(worker, f"/_worker/workers/{name}", body, token=token, name=name, method="PATCH", **more)
    )


async def password(here: House, worker: Raw, worker_id: str | None = "raw") -> str:
    body = {} if worker_id is None else {"worker_id": worker_id}
    headers = {"X-Client-Token": "a-client-token"}
    async with worker.http.post("/api/v1/tokens/otp", json=body, headers=headers) as answer:
        assert answer.status == 201
        assert answer.headers["Cache-Control"] == "no-store"
        told: dict[str, Any] = await answer.json()
        return str(told["password"])


async def revoke(worker: Raw, worker_id: str = "raw", token: str = "a-client-token") -> Told:
    body, headers = {"worker_id": worker_id}, {"X-Client-Token": token}
    async with worker.http.post("/api/v1/tokens/revoke", json=body, headers=headers) as answer:
        return answer.status, await answer.json()


# -- short-lived tokens ------------------------------------------------------------------------------


def test_a_worker_with_a_configured_token_gets_a_short_lived_one_and_works_with_it() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        told = await login(worker)

        assert set(told) == {"access_token", "refresh_token", "expires_in", "worker_id"}
        assert (told["expires_in"], told["worker_id"]) == (3600, "raw")
        async with raw(here, **{"X-Worker-Token": told["access_token"]}) as short:
            await short.register()
            job = await here.submit("echo")
            task = await short.poll()
            assert task["job_id"] == job
            assert (await short.finish(task, {"echo": 1}))["status"] == "accepted"
            await short.beat()
            async with short.http.ws_connect("/_worker/ws/raw"):
                pass

    play(scenario)


def test_nobody_gets_one_without_a_right_or_without_a_name() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        assert await code(ask(worker, ISSUE, token="")) == (401, "token_missing")
        assert await code(ask(worker, ISSUE, token="wrong")) == (401, "token_unknown")
        assert await code(ask(worker, ISSUE, name=None)) == (400, "bad_message")
        assert await code(ask(worker, ISSUE, name="a b")) == (400, "bad_identifier")
        assert await code(ask(worker, ISSUE, {"worker_id": "other"})) == (403, "worker_mismatch")
        assert await code(ask(worker, ISSUE, ["?"])) == (400, "bad_message")

    play(scenario)


def test_it_is_good_for_the_worker_it_was_given_to_and_for_no_other() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        token = (await login(worker))["access_token"]
        assert (await beat(worker, token))[0] in (200, 404)
        assert await beat(worker, token, "other") == (403, "worker_mismatch")
        for path, body in (
            ("/_worker/workers/register", {"worker_id": "other", **OLD}),
            ("/_worker/tasks/result", {"job_id": "j", "task_id": "t", "worker_id": "other"}),
            ("/_worker/events", {"event_type": "x", "worker_id": "other"}),
        ):
            assert await code(ask(worker, path, body, token=token, name=None)) == (403, "worker_mismatch")
        for path in ("/_worker/ws/other", "/_worker/workers/other/tasks/next"):
            async with worker.http.get(path, headers={"X-Worker-Token": token}) as answer:
                assert answer.status == 403

    play(scenario)


def test_it_is_over_after_its_time_and_the_worker_comes_in_with_the_next() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        told = await login(worker)
        await asyncio.sleep(0.35)
        assert await beat(worker, told["access_token"]) == (401, "token_expired")
        status, again = await ask(worker, REFRESH, {"refresh_token": told["refresh_token"]}, token=None)
        assert status == 200
        assert (await beat(worker, again["access_token"]))[0] in (200, 404)

    play(scenario, sts_token_s=0.3)


def test_a_short_lived_token_does_not_make_a_longer_one() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        token = (await login(worker))["access_token"]
        assert await code(ask(worker, ISSUE, token=token)) == (403, "refresh_instead")

    play(scenario)


def test_a_refresh_token_is_good_once_and_its_second_use_ends_the_family() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        first = await login(worker)
        wish = {"refresh_token": first["refresh_token"]}
        status, second = await ask(worker, REFRESH, wish, token=first["access_token"])
        assert status == 200

        assert await code(ask(worker, REFRESH, wish)) == (401, "token_reused")

        assert await beat(worker, second["access_token"]) == (401, "token_unknown")
        late = {"refresh_token": second["refresh_token"]}
        assert await code(ask(worker, REFRESH, late)) == (401, "token_unknown")

    play(scenario)


def test_a_repeated_refresh_is_answered_like_the_first() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        first = await login(worker)
        wish = {"refresh_token": first["refresh_token"], "request_id": "a-secret-that-only-i-know"}
        short = wish | {"request_id": "guess-me"}
        assert await code(ask(worker, REFRESH, short)) == (400, "bad_message")
        answers = [await ask(worker, REFRESH, wish) for _ in range(2)]
        assert answers[0] == answers[1]
        assert answers[0][0] == 200

    play(scenario)


def test_the_loops_of_a_stock_worker_may_refresh_at_once() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        wish = {"refresh_token": (await login(worker))["refresh_token"]}
        stock = {"X-RXON-Version": "1.0b17"}
        answers = await asyncio.gather(*(ask(worker, REFRESH, wish, headers=stock) for _ in range(3)))
        assert [status for status, _ in answers] == [200] * 3
        assert len({told["access_token"] for _, told in answers}) == 1

    play(scenario)


def test_a_refresh_names_nobody_else() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        told = await login(worker)
        wish = {"refresh_token": told["refresh_token"]}
        assert await code(ask(worker, REFRESH, wish, name="other")) == (403, "worker_mismatch")
        assert await code(ask(worker, REFRESH, {})) == (400, "bad_message")
        assert await code(ask(worker, REFRESH, {"refresh_token": "x"}, name=None)) == (401, "token_unknown")
        assert (await ask(worker, REFRESH, wish))[0] == 200  # none of them has used it up

    play(scenario)


def test_what_is_revoked_lets_nobody_in_and_an_open_stream_is_closed() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        told = await login(worker)
        other = await login(worker, "other")
        headers = {"X-Worker-Token": told["access_token"]}
        async with (
            raw(here, **headers) as short,
            short.http.ws_connect("/_worker/ws/raw", protocols=[frames.PROTOCOL]) as socket,
        ):
            registered = await short.register()
            await greet(socket, registered["session"])

            assert await revoke(worker) == (200, {"worker_id": "raw", "logins": 1, "passwords": 0})

            async with asyncio.timeout(2):
                while (last := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                    pass
            assert last.data == 1008, last
        assert await beat(worker, told["access_token"]) == (401, "token_unknown")
        wish = {"refresh_token": told["refresh_token"]}
        assert await code(ask(worker, REFRESH, wish)) == (401, "token_unknown")
        assert (await beat(worker, other["access_token"], "other"))[0] in (200, 404)

    play(scenario)


def test_a_poll_that_was_open_gets_nothing_for_a_token_that_was_taken_back() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        told = await login(worker)
        async with raw(here, **{"X-Worker-Token": told["access_token"]}) as short:
            await short.register()
            path = "/_worker/workers/raw/tasks/next?timeout=3"
            poll = asyncio.create_task(ask(short, path, token=told["access_token"], method="GET"))
            await until(
                lambda: bool((connected := here.director.dispatcher.find("raw")) and connected.credit)
            )
            await revoke(worker)
            job_id = await here.submit("echo")
            assert await code(poll) == (401, "token_unknown")
            assert (await here.task(job_id)).state != "started"

    play(scenario)


def test_a_stream_whose_token_was_changed_ends_with_its_next_heartbeat(tmp_path: Path) -> None:
    workers = tmp_path / "workers.toml"
    workers.write_text('["raw"]\ntoken = "first"\n')

    async def scenario(here: House, worker: Raw) -> None:
        async with (
            raw(here, **{"X-Worker-Token": "first"}) as owner,
            owner.http.ws_connect("/_worker/ws/raw", protocols=[frames.PROTOCOL]) as socket,
        ):
            registered = await owner.register()
            await greet(socket, registered["session"])
            await socket.send_bytes(frames.encode([frames.HeartbeatFrame([], None)]))
            assert (await socket.receive(timeout=2)).type is aiohttp.WSMsgType.BINARY
            workers.write_text('["raw"]\ntoken = "second"\n')
            assert here.director.reload()
            await socket.send_bytes(frames.encode([frames.HeartbeatFrame([], None)]))
            assert (await socket.receive(timeout=2)).data == 1008

    play(scenario, workers_config_path=str(workers))


def test_what_was_done_with_tokens_is_on_record_and_no_token_is() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        secret = await password(here, worker)
        status, told = await ask(worker, ISSUE, token=secret)
        assert status == 200
        await ask(worker, ISSUE, token=secret)
        wish = {"refresh_token": told["refresh_token"]}
        for _ in range(2):
            await ask(worker, REFRESH, wish)
        await revoke(worker)
        records = await here.director.storage.records("audit", limit=50)
        kept = b"".join(item.value for item in records)
        for action in ("token.otp", "token.traded", "token.reused", "token.revoke"):
            assert action.encode() in kept
        for token in (secret, told["access_token"], told["refresh_token"]):
            assert token.rpartition(".")[2].encode() not in kept

    play(scenario)


async def greet(socket: aiohttp.ClientWebSocketResponse, session: int) -> None:
    await socket.send_bytes(frames.encode([frames.HelloFrame(session, [])]))
    assert (await socket.receive(timeout=2)).type is aiohttp.WSMsgType.BINARY


def test_only_operators_hand_out_and_take_back(tmp_path: Path) -> None:
    clients = tmp_path / "clients.toml"
    clients.write_text('[ada]\ntoken = "t-ada"\n')

    async def scenario(here: House, worker: Raw) -> None:
        assert await code(revoke(worker, token="t-ada")) == (403, "operators_only")
        for token, status in (("t-ada", 403), ("", 401), (TOKEN, 401)):
            headers = {"X-Client-Token": token}
            async with worker.http.post("/api/v1/tokens/otp", json={}, headers=headers) as answer:
                assert answer.status == status

    play(scenario, clients_config_path=str(clients))


def test_a_login_ends_with_the_configured_token_that_it_was_given_for(tmp_path: Path) -> None:
    workers = tmp_path / "workers.toml"
    workers.write_text('["raw"]\ntoken = "first"\n')

    async def scenario(here: House, worker: Raw) -> None:
        status, told = await ask(worker, ISSUE, token="first", name=None)  # its own token says who it is
        assert (status, told["worker_id"]) == (200, "raw")
        assert (await beat(worker, told["access_token"]))[0] in (200, 404)
        workers.write_text('["raw"]\ntoken = "second"\n')
        assert here.director.reload()
        assert await beat(worker, told["access_token"]) == (401, "token_unknown")

    play(scenario, workers_config_path=str(workers))


def test_a_token_of_ones_own_is_final_whatever_else_is_right(tmp_path: Path) -> None:
    workers = tmp_path / "workers.toml"
    workers.write_text('["raw"]\ntoken = "own"\n["other"]\ntoken = "others"\n')

    async def scenario(here: House, worker: Raw) -> None:
        for wrong in (TOKEN, "others", "nonsense"):
            assert await beat(worker, wrong) == (401, "token_unknown")
            assert await code(ask(worker, ISSUE, token=wrong)) == (401, "token_unknown")
        # A password that anybody may use does not open this door; one for this worker does.
        anybody = await password(here, worker, None)
        assert await code(ask(worker, ISSUE, token=anybody)) == (401, "token_unknown")
        assert (await ask(worker, ISSUE, token=await password(here, worker)))[0] == 200
        assert (await ask(worker, ISSUE, token=anybody, name="free"))[0] == 200

    play(scenario, workers_config_path=str(workers))


# -- one-time passwords ------------------------------------------------------------------------------


def test_a_password_is_traded_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        secret = await password(here, worker)
        status, told = await ask(worker, ISSUE, token=secret)
        assert status == 200
        assert await code(ask(worker, ISSUE, token=secret)) == (401, "password_used")
        assert (await beat(worker, told["access_token"]))[0] in (200, 404)
        assert secret not in caplog.text

    play(scenario)


def test_of_two_at_once_with_one_password_one_wins() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        secret = await password(here, worker)
        answers = await asyncio.gather(*(ask(worker, ISSUE, token=secret) for _ in range(6)))
        assert sorted(status for status, _ in answers) == [200] + [401] * 5

    play(scenario)


def test_a_password_opens_registration_too_and_the_answer_has_the_login() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        secret = await password(here, worker)
        body = {"worker_id": "raw", **OLD}
        status, told = await ask(worker, "/_worker/workers/register", body, token=secret)
        assert (status, told["status"]) == (200, "registered")
        assert (await beat(worker, told["access_token"])) == (200, "")
        again = ask(worker, "/_worker/workers/register", body, token=secret)
        assert await code(again) == (401, "password_used")

    play(scenario)


def test_a_password_opens_no_other_door_and_is_good_for_no_other_worker() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        secret = await password(here, worker)
        assert await beat(worker, secret) == (401, "token_unknown")
        assert await code(ask(worker, ISSUE, token=secret, name="other")) == (403, "worker_mismatch")
        assert await code(ask(worker, ISSUE, token="rop.nonsense")) == (401, "password_unknown")
        body = {"worker_id": "raw", **OLD}
        made_up = ask(worker, "/_worker/workers/register", body, token="rop.nonsense")
        assert await code(made_up) == (401, "password_unknown")
        assert here.director.dispatcher.find("raw") is None
        assert (await ask(worker, ISSUE, token=secret))[0] == 200  # none of that has used it up

    play(scenario)


def test_made_up_passwords_and_tokens_use_up_nothing_of_the_worker_they_name() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        body = {"worker_id": "raw", **OLD}
        for _ in range(20):
            await ask(worker, "/_worker/workers/register", body, token="rop.made-up")
            await ask(worker, REFRESH, {"refresh_token": "rsr.raw.made.up"})
        await worker.register()
        await worker.beat()

    play(scenario, rate_limits={"heartbeat": "5/m", "auth": "off"})


def test_a_password_that_was_taken_back_is_none() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        secret = await password(here, worker)
        assert (await revoke(worker))[1]["passwords"] == 1
        assert await code(ask(worker, ISSUE, token=secret)) == (401, "password_unknown")

    play(scenario)


# -- signatures --------------------------------------------------------------------------------------


def signed(body: dict[str, Any], key: str, signer: str = "raw") -> dict[str, Any]:
    return {**body, "security": {"signature": sign(body, key), "signer_id": signer}}


@pytest.mark.parametrize("key", ["access", "configured", "before"])
def test_whoever_has_a_login_signs_with_it_or_with_what_it_had(key: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        before = await login(worker)
        body = {"worker_id": "raw", **OLD, "timestamp": int(time.time())}
        token = before["access_token"]
        assert await code(ask(worker, "/_worker/workers/register", signed(body, token), token=token)) == (
            200,
            "",
        )
        wish = {"refresh_token": before["refresh_token"]}
        _, now = await ask(worker, REFRESH, wish)
        keys = {"access": now["access_token"], "configured": TOKEN, "before": before["access_token"]}
        pulse = {"worker_id": "raw", "status": "idle", "current_tasks": [], "timestamp": 1}
        path, brought = "/_worker/workers/raw", now["access_token"]
        said = await code(ask(worker, path, signed(pulse, keys[key]), token=brought, method="PATCH"))
        assert said == (200, "")
        wrong = await code(ask(worker, path, signed(pulse, "x"), token=brought, method="PATCH"))
        assert wrong == (401, "signature_wrong")
        assert await code(ask(worker, path, pulse, token=brought, method="PATCH")) == (
            401,
            "signature_missing",
        )

    play(scenario, worker_require_signatures=True)


def test_a_signed_wish_for_a_token_must_be_of_this_minute() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        for off_s, expected in (
            (0, (200, "")),
            (-90, (401, "timestamp_out_of_range")),
            (90, (401, "timestamp_out_of_range")),
        ):
            wish = {"worker_id": "raw", "timestamp": int(time.time()) + off_s}
            assert await code(ask(worker, ISSUE, signed(wish, TOKEN))) == expected
        assert await code(ask(worker, ISSUE, signed({"worker_id": "raw"}, TOKEN))) == (
            401,
            "timestamp_missing",
        )
        told = await login(worker)
        stale = {"refresh_token": told["refresh_token"], "timestamp": int(time.time()) - 90}
        assert await code(ask(worker, REFRESH, signed(stale, TOKEN))) == (401, "timestamp_out_of_range")
        fresh = {"refresh_token": told["refresh_token"], "timestamp": int(time.time())}
        assert await code(ask(worker, REFRESH, signed(fresh, TOKEN, "other"))) == (403, "worker_mismatch")
        assert (await ask(worker, REFRESH, signed(fresh, told["refresh_token"])))[0] == 200

    play(scenario)


# -- nobody speaks for another -----------------------------------------------------------------------


def test_another_workers_attempt_is_nobody_elses_business() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        job_id = await here.submit("echo")
        task = await worker.poll()
        thief = (await login(worker, "thief"))["access_token"]
        async with raw(here, "thief", **{"X-Worker-Token": thief}) as other:
            await other.register()
            told = await other.finish(task, {"echo": "stolen"})
            assert (told["status"], told["reason"]) == ("ignored", "worker_mismatch")
            event = {
                "worker_id": "thief",
                "event_type": "progress",
                "target_task_id": task["task_id"],
                "payload": {"progress": 0.9},
            }
            await other.ask("POST", "/_worker/events", event)
            await other.beat(task["task_id"])
            await here.director.workers.write_signs()
            assert (await here.task(job_id)).progress is None
            assert (await here.task(job_id)).worker_id == "raw"
        assert (await worker.finish(task, {"echo": 1}))["status"] == "accepted"

    play(scenario)


def test_a_socket_without_a_name_speaks_for_nobody_that_has_a_token_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workers = tmp_path / "workers.toml"
    workers.write_text('["raw"]\ntoken = "own"\n')

    async def scenario(here: House, worker: Raw) -> None:
        async with raw(here, **{"X-Worker-Token": "own"}) as owner:
            await owner.register()
            job_id = await here.submit("echo")
            task = await owner.poll()
            async with worker.http.ws_connect("/_worker/ws") as socket:  # with everybody's token
                event = {
                    "event_type": "progress",
                    "worker_id": "raw",
                    "target_task_id": task["task_id"],
                    "payload": {"progress": 0.9},
                }
                await socket.send_json(event)
                await until(lambda: "was ignored" in caplog.text)
            await here.director.workers.write_signs()
            assert (await here.task(job_id)).progress is None

    play(scenario, workers_config_path=str(workers))
