"""`regista serve` on a real Redis, as a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import House
from tests.conftest import Require
from tests.ports import free_port
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.close()


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[RedisServer]:
    with RedisServer(require("redis-server"), appendonly=True) as server:
        yield server


def greeted(house: House) -> bool:
    done = house.run("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait", "--timeout", "15")
    return done.returncode == 0


def test_serve_keeps_its_jobs_where_storage_says(house: House, server: RedisServer) -> None:
    serving = house.serve("--storage", f"redis://127.0.0.1:{server.port}/4")
    house.start("worker", "app.py")

    assert greeted(house), house.logs()
    assert not (house.folder / ".regista" / "jobs.db").exists()
    listing = house.run("jobs", "list")
    assert "no history is configured" in listing.stderr
    assert house.end(serving) == 0, house.logs()
    assert "Traceback" not in house.logs()


def test_redis_host_takes_the_place_of_the_file(house: House, server: RedisServer) -> None:
    house.set(REDIS_HOST="127.0.0.1", REDIS_PORT=str(server.port), REDIS_DB="5")
    house.serve()
    house.start("worker", "app.py")

    assert greeted(house), house.logs()
    assert not (house.folder / ".regista" / "jobs.db").exists()
    assert "db5:keys=" in server.ask("INFO", "keyspace")


def test_a_server_that_is_away_or_unfit_is_refused_in_a_line(house: House, require: Require) -> None:
    house.set(REGISTA_STORE_WAIT_SECONDS="0")
    away = house.run("serve", "app.py", "--storage", f"redis://stage:sesame@127.0.0.1:{free_port()}")
    with RedisServer(require("redis-server"), "--maxmemory-policy", "volatile-lru") as unfit:
        refused = house.run("serve", "app.py", "--storage", unfit.url)

    assert "the store cannot be reached" in away.stderr.splitlines()[-1]
    assert "expected maxmemory-policy noeviction, got volatile-lru" in refused.stderr.splitlines()[-1]
    for done in (away, refused):
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "sesame" not in done.stderr
