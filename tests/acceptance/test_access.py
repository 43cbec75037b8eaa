"""Who may come in: clients.toml and workers.toml, tried at the running server."""

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from regista import ActionFactory, JobContext, OrchestratorEngine
from regista.client import Client
from regista.config import Config
from regista.errors import ConfigError, PasswordsDisabled
from tests.acceptance.processes import House
from tests.support import script

CLIENTS = """
[acme]
token = "t-acme"
plan = "gold"
region = "eu"

[office]
token = "t-office"
operator = true
"""
WORKERS = """
["render-7"]
token = "t-seven"
"""


def start(context: JobContext, actions: ActionFactory) -> None:
    context.state_history["plan"] = context.client.plan
    context.state_history["region"] = context.client.params.get("region")
    actions.transition_to("done")


async def _status(http: aiohttp.ClientSession, url: str, token: str, worker_id: str) -> int:
    body = {"worker_id": worker_id, "worker_type": "t", "supported_skills": ["x"], "resources": {}}
    headers = {"X-Worker-Token": token}
    async with http.post(f"{url}/_worker/workers/register", json=body, headers=headers) as answer:
        return answer.status


def test_clients_and_workers_of_the_files_come_in_as_themselves(tmp_path: Path) -> None:
    (tmp_path / "clients.toml").write_text(CLIENTS)
    (tmp_path / "workers.toml").write_text(WORKERS)
    config = Config(
        worker_token="t-all",
        clients_config_path=str(tmp_path / "clients.toml"),
        workers_config_path=str(tmp_path / "workers.toml"),
    )

    async def main() -> None:
        director = OrchestratorEngine("memory", config)
        director.register_blueprint(script(start, "done"))
        site = await director.serve(port=0)
        async with aiohttp.ClientSession() as http:

            async def ask(method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
                headers = {"X-Client-Token": token} if token else {}
                async with http.request(method, site.url + path, json=body, headers=headers) as answer:
                    return answer.status, await answer.json()

            status, job = await ask("POST", "/api/v1/jobs?wait=5", "t-acme", {"blueprint": "script"})
            assert (status, job["data"]) == (200, {"plan": "gold", "region": "eu"})
            path = f"/api/v1/jobs/{job['id']}"
            assert [(await ask("GET", path, token))[0] for token in ("t-acme", "t-office", "", "t-x")] == [
                200, 200, 401, 401,
            ]  # fmt: skip
            # Its own token, and no other; everybody else, everybody's.
            tried = [
                ("t-seven", "render-7"),
                ("t-all", "render-7"),
                ("t-all", "w"),
                ("t-seven", "w"),
                ("", "w"),
            ]
            assert [await _status(http, site.url, *one) for one in tried] == [200, 401, 200, 401, 401]
            # Read anew, acme is gone and bob is there; a mistake changes nothing.
            (tmp_path / "clients.toml").write_text('[bob]\ntoken = "t-bob"')
            assert director.reload() is True
            assert [(await ask("GET", "/api/v1/jobs", token))[0] for token in ("t-bob", "t-acme")] == [
                200,
                401,
            ]
            (tmp_path / "clients.toml").write_text("[bob")
            assert director.reload() is False
            assert (await ask("GET", "/api/v1/jobs", "t-bob"))[0] == 200
        await director.stop()

    asyncio.run(main())


async def test_a_mistake_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "clients.toml").write_text('[acme]\nplan = "gold"')
    config = Config(worker_token="t", clients_config_path=str(tmp_path / "clients.toml"))

    director = OrchestratorEngine("memory", config)
    with pytest.raises(ConfigError, match=r"clients.toml, line 1: acme: expected either token"):
        await director.serve(port=0)


async def test_a_token_that_is_already_a_clients_makes_nobody_an_operator(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text('[acme]\ntoken = "t-acme"')

    config = Config(worker_token="t", client_token="t-acme", clients_config_path=str(file))
    with pytest.raises(ConfigError, match=r"^CLIENT_TOKEN: .*got 'the token of the client acme'"):
        await OrchestratorEngine("memory", config).serve(port=0)
    with pytest.raises(ConfigError, match=r"clients.toml: .*got 'the token of the client ada'"):
        await OrchestratorEngine(
            "memory",
            Config(worker_token="t", clients_config_path=str(file)),
            client_tokens={"t-acme": "ada"},
        ).serve(port=0)


def test_a_file_without_a_client_lets_nobody_in_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "clients.toml"
    file.write_text("# nobody yet")
    config = Config(worker_token="t", clients_config_path=str(file), state_dir=str(tmp_path / "state"))

    async def main() -> None:
        director = OrchestratorEngine("memory", config)
        await director.serve(port=0)
        await director.stop(0.0)

    with caplog.at_level(logging.WARNING, "regista.doors"):
        asyncio.run(main())

    assert "clients.toml names no client, so nobody may ask for anything" in caplog.text
    assert not (tmp_path / "state").exists()


async def test_certificates_that_nobody_could_check_stop_the_start() -> None:
    director = OrchestratorEngine("memory", Config(client_token="t", worker_auth_mode="mtls-only"))
    with pytest.raises(ConfigError, match=r"^WORKER_AUTH_MODE: .*TLS_CA_PATH.*REGISTA_TRUSTED_PROXIES"):
        await director.serve(port=0)


async def test_where_certificates_decide_alone_there_are_no_passwords() -> None:
    config = Config(client_token="t", worker_auth_mode="mtls-only", trusted_proxies=("10.0.0.1",))

    director = OrchestratorEngine("memory", config)
    site = await director.serve(port=0)
    async with Client(site.url, token="t") as client:
        with pytest.raises(PasswordsDisabled):
            await client.one_time_password("w")
    await director.stop(0.0)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.close()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_sighup_lets_a_new_client_in_whose_token_was_just_made(house: House) -> None:
    file = house.folder / "clients.toml"
    made = json.loads(house.said("tokens", "new", "--client", "acme", "--json"))
    file.write_text('[office]\ntoken = "t-office"\n')
    house.set(CLIENTS_CONFIG_PATH=str(file))
    process = house.serve()
    house.set(CLIENT_TOKEN=made["token"])
    assert house.run("jobs", "list").returncode != 0
    file.write_text(file.read_text() + made["toml"] + "\n")
    os.kill(process.pid, signal.SIGHUP)
    give_up = time.monotonic() + 10
    while house.run("jobs", "list").returncode != 0:
        assert time.monotonic() < give_up, house.logs()
    assert process.poll() is None
