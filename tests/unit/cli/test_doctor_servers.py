import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from regista.cli.doctor_servers import payloads, people, postgres, redis, schedules
from regista.config import Config
from tests.conftest import Require
from tests.ports import free_port
from tests.postgres_server import PostgresServer, postgres_binary
from tests.redis_server import RedisServer


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[RedisServer]:
    with RedisServer(require("redis-server"), appendonly=True) as server:
        yield server


@pytest.fixture(scope="module")
def database(require: Require) -> Iterator[PostgresServer]:
    with PostgresServer(postgres_binary(require)) as server:
        yield server


async def test_a_redis_that_is_fit_is_good_and_one_that_forgets_or_is_away_is_not(
    server: RedisServer, require: Require
) -> None:
    good = await redis(Config(storage=server.url))
    away = await redis(Config(storage=f"redis://user:hush@127.0.0.1:{free_port()}/0"))
    with RedisServer(require("redis-server"), appendonly=False) as forgetful:
        forgets = await redis(Config(storage=forgetful.url))

    assert good.good
    assert not away.good
    assert "hush" not in away.found
    assert away.advice
    assert (forgets.good, "append-only" in forgets.found) == (False, True)


async def test_a_history_that_answers_tells_its_version_and_nothing_is_changed_there(
    database: PostgresServer,
) -> None:
    (found,) = await postgres(Config(history_database_uri=database.uri()))
    (away,) = await postgres(
        Config(history_database_uri=f"postgresql://me:hush@127.0.0.1:{free_port()}/regista")
    )

    assert found.good
    assert "PostgreSQL" in found.found
    assert not away.good
    assert "hush" not in away.found


async def test_a_history_in_a_file_is_not_asked() -> None:
    assert await postgres(Config(history_database_uri="sqlite:h.db")) == []


def test_the_files_of_people_are_read_as_a_start_would_read_them(tmp_path: Path) -> None:
    clients, workers = tmp_path / "clients.toml", tmp_path / "workers.toml"
    clients.write_text('[acme]\ntoken = "a-token-of-acme"\n')
    workers.write_text('[gpu-1]\ntoken = "x"\nwrong = 1\n')

    good, bad = people(Config(clients_config_path=str(clients), workers_config_path=str(workers)))

    assert (good.good, good.found) == (True, f"{clients}: 1 clients")
    assert not bad.good
    assert "wrong" in bad.found
    assert people(Config()) == []


def test_a_file_of_schedules_is_read(tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    file.write_text('[nightly]\nblueprint = "b"\ncron = "0 3 * * *"\n')
    (good,) = schedules(Config(schedules_config_path=str(file)))
    file.write_text('[nightly]\nblueprint = "b"\ncron = "never"\n')
    (bad,) = schedules(Config(schedules_config_path=str(file)))

    assert (good.good, "1 schedules" in good.found) == (True, True), good
    assert (bad.good, str(file) in bad.found) == (False, True), bad
    assert schedules(Config()) == []


async def test_the_place_of_files_is_looked_at_and_nothing_is_made_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    found = [
        await payloads(Config(payloads=word))
        for word in (f"file:{tmp_path / 'new'}", f"file:{tmp_path / 'typo' / 'deep'}", "file:here", "memory")
    ]
    (away,) = await payloads(
        Config(payloads="s3://b", s3_endpoint_url="http://127.0.0.1:9", s3_access_key="k")
    )

    assert [one.good for (one,) in found] == [True, False, False, True]
    assert f"file:{tmp_path / 'here'}" in found[2][0].advice
    assert not away.good
    assert os.listdir() == []
    assert await payloads(Config()) == []
