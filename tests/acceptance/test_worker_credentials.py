"""Our own worker with short-lived tokens and one-time passwords, on every store."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from regista import Client, Worker
from regista.config import Connection
from tests.acceptance.any_store import redis_server, storage
from tests.acceptance.stream_kit import House, connected, play, until
from tests.redis_server import RedisServer

__all__ = ["redis_server", "storage"]  # fixtures

BOTH = pytest.mark.parametrize("streams", [None, False], ids=["stream", "poll"])
#: A worker without any token of the settings.
BARE: dict[str, Any] = {"token": "", "worker_id": "w", "state_dir": "nowhere"}


def crew() -> Worker:
    worker = Worker("w")

    @worker.task("work")
    def work(params: dict[str, Any]) -> dict[str, Any]:
        return {"done": params.get("n")}

    return worker


def client(house: House) -> Client:
    return Client(connection=Connection(url=house.url, token="client"))


async def password(house: House, worker_id: str | None = "w") -> str:
    async with client(house) as operator:
        made = await operator.one_time_password(worker_id)
    return str(made["password"])


def logged(caplog: pytest.LogCaptureFixture, action: str, level: int) -> Callable[[], bool]:
    def found(record: logging.LogRecord) -> bool:
        return getattr(record, "action", "") == action and record.levelno == level

    return lambda: any(map(found, caplog.records))


@BOTH
def test_a_worker_comes_with_a_password_alone_and_outlives_a_restart(
    storage: str, streams: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with House(storage=storage) as house:
            bare = BARE | {"one_time_password": await password(house), "enable_websockets": streams}
            async with connected(crew(), house.url, **bare):
                assert (await house.run({"n": 1})).data == {"done": 1}
                if storage != "memory":
                    await house.close()
                    await house.open()  # its login lies in the store
                    assert (await house.run({"n": 2}, 8)).data == {"done": 2}
            # Whoever comes later with the same one stays outside.
            async with connected(crew(), house.url, wait=False, **bare):
                await until(logged(caplog, "waiting", logging.ERROR))
                assert "regista tokens otp" in caplog.text
                assert "set WORKER_TOKEN" not in caplog.text

    play(main())


@BOTH
def test_tokens_are_renewed_before_they_are_over_and_nobody_notices(streams: bool | None) -> None:
    async def main() -> None:
        async with House(sts_token_s=1.0) as house:
            bare = BARE | {"one_time_password": await password(house, None), "enable_websockets": streams}
            async with connected(crew(), house.url, **bare) as remote:
                for n in range(5):  # each token is good for two of them
                    assert (await house.run({"n": n})).data == {"done": n}
                    await asyncio.sleep(0.35)
                assert remote.transports()[house.url] == ("stream" if streams is None else "poll")

    play(main())


@BOTH
def test_a_worker_that_is_revoked_is_out_and_with_a_configured_token_it_comes_back(
    streams: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with House() as house, client(house) as operator:
            bare = BARE | {"one_time_password": await password(house), "enable_websockets": streams}
            async with connected(crew(), house.url, **bare):
                assert (await operator.revoke("w"))["logins"] == 1
                await until(logged(caplog, "waiting", logging.ERROR))
            caplog.clear()
            usual: dict[str, Any] = {"worker_id": "w", "use_sts": True, "enable_websockets": streams}
            async with connected(crew(), house.url, **usual) as remote:
                assert (await operator.revoke("w"))["logins"] == 1
                await until(logged(caplog, "login_over", logging.WARNING))
                assert await remote.wait_connected(5)
                assert (await house.run({"n": 1})).data == {"done": 1}

    play(main())


@BOTH
@pytest.mark.parametrize("use_sts", [False, True])
def test_where_signatures_are_required_our_worker_signs(streams: bool | None, use_sts: bool) -> None:
    async def main() -> None:
        async with House(worker_require_signatures=True) as house:
            settings: dict[str, Any] = {"worker_id": "w", "use_sts": use_sts, "enable_websockets": streams}
            async with connected(crew(), house.url, **settings):
                assert (await house.run({"n": 1})).data == {"done": 1}

    play(main())


def test_a_token_that_one_instance_gave_out_is_good_at_the_other(redis_server: RedisServer) -> None:
    assert redis_server.ask("FLUSHALL") == "+OK"
    storage = redis_server.url

    async def main() -> None:
        async with (
            House(storage=storage, instance_id="one") as one,
            House(storage=storage, instance_id="two") as two,
            aiohttp.ClientSession() as http,
        ):
            secret = await password(one)
            answers = await asyncio.gather(*(_log_in(http, house.url, secret) for house in (one, two) * 3))
            assert sorted(status for status, _ in answers) == [200] + [401] * 5
            (token,) = [told["access_token"] for status, told in answers if status == 200]
            assert [await _beat(http, house.url, token) for house in (one, two)] == [200, 200]
            async with client(one) as operator:
                assert (await operator.revoke("w"))["logins"] == 1
            assert await _beat(http, one.url, token) == 401
            await asyncio.sleep(1.1)  # for so long the other one believes what it has seen
            assert await _beat(http, two.url, token) == 401

    play(main())


async def _log_in(http: aiohttp.ClientSession, url: str, secret: str) -> tuple[int, dict[str, Any]]:
    headers = {"X-Worker-Token": secret, "X-Worker-ID": "w"}
    async with http.post(f"{url}/_worker/auth/token", headers=headers) as answer:
        return answer.status, await answer.json()


async def _beat(http: aiohttp.ClientSession, url: str, token: str) -> int:
    body = {"worker_id": "w", "status": "idle", "current_tasks": []}
    headers = {"X-Worker-Token": token}
    async with http.patch(f"{url}/_worker/workers/w", json=body, headers=headers) as answer:
        return answer.status
