"""Several orchestrators on one machine or one store, as processes: what they say, and whom they let in."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import House, free_port
from tests.conftest import Require
from tests.postgres_server import PostgresServer, postgres_binary
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(40)]


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[RedisServer]:
    with RedisServer(require("redis-server"), appendonly=True) as server:
        yield server


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    del house.env["REGISTA_URL"], house.env["ORCHESTRATOR_URL"]
    try:
        yield house
    finally:
        house.close()


def test_serve_waits_for_a_redis_that_comes_later(house: House, require: Require) -> None:
    server = RedisServer(require("redis-server"), appendonly=True)
    try:
        serving = house.start("serve", "app.py", "--storage", server.url)
        house.until_logged("the store cannot be reached.*waiting for it, 60 s at most")
        server.start()
        assert serving.stdout is not None
        assert house.url in serving.stdout.readline(), house.logs()
        house.until_logged("it is reachable; going on")
        assert house.logs().count("waiting for it") == 1
        assert house.end(serving) == 0
    finally:
        server.close()


def test_serve_waits_for_a_history_that_comes_later(house: House, require: Require) -> None:
    with PostgresServer(postgres_binary(require)) as history:
        place = history.place()
        history.stop()
        house.set(HISTORY_DATABASE_URI=place)
        serving = house.start("serve", "app.py")
        house.until_logged("the history .*waiting for it, 60 s at most")
        history.start()
        assert serving.stdout is not None
        assert house.url in serving.stdout.readline(), house.logs()
        assert house.logs().count("waiting for it") == 1
        assert house.end(serving) == 0


def test_serve_that_waits_for_a_redis_ends_when_it_is_told_to(house: House) -> None:
    serving = house.start("serve", "app.py", "--storage", f"redis://127.0.0.1:{free_port()}")
    house.until_logged("waiting for it")
    assert house.end(serving) == 0
    assert "Traceback" not in house.logs()


def test_wrong_credentials_are_not_waited_for(house: House, require: Require) -> None:
    with RedisServer(require("redis-server"), "--requirepass", "sesame") as closed:
        began = time.monotonic()
        refused = house.run("serve", "app.py", "--storage", closed.url)
        took_s = time.monotonic() - began
    assert refused.returncode == 1
    assert "waiting" not in refused.stderr
    assert took_s < 15


def test_a_history_of_ones_own_on_a_shared_store_is_refused(house: House, server: RedisServer) -> None:
    house.set(HISTORY_DATABASE_URI="sqlite:own.db")
    refused = house.run("serve", "app.py", "--storage", f"redis://127.0.0.1:{server.port}/1", patience_s=25)
    assert refused.returncode != 0
    assert "HISTORY_DATABASE_URI: expected a PostgreSQL database" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_second_to_serve_in_a_directory_does_not_take_the_address_of_the_first(
    house: House, server: RedisServer
) -> None:
    store = f"redis://127.0.0.1:{server.port}/2"
    first = house.serve("--storage", store)
    port = free_port()
    second = house.start("serve", "app.py", "--storage", store, "--port", str(port))
    # then: it says so, and commands go where they went
    house.until_logged(f"another orchestrator serves in this directory: commands go to {house.url}")
    assert (house.folder / ".regista" / "url").read_text().strip() == house.url
    # and: when the first is killed, the second is found
    house.end(first, signal.SIGKILL)
    house.until_logged(f"commands in this directory find http://127.0.0.1:{port} from now on")
    assert house.said("jobs", "run", "doomed")
    assert house.end(second) == 0
    assert not (house.folder / ".regista" / "url").exists()


@pytest.mark.parametrize(
    ("apart", "transport"),
    [(False, "stream"), (True, "stream"), (True, "poll")],
    ids=["one", "two", "polling"],
)
def test_of_two_workers_with_one_id_the_loser_says_once_who_took_over(
    house: House, server: RedisServer, apart: bool, transport: str
) -> None:
    store = f"redis://127.0.0.1:{server.port}/{4 + apart + (transport == 'poll')}"
    house.set(WORKER_ENABLE_WEBSOCKETS="true" if transport == "stream" else "false")
    house.set(REGISTA_LEASE_SECONDS="1.5", WORKER_ID="twin", CLIENT_TOKEN="c" * 20, WORKER_TOKEN="w" * 20)
    urls = [house.url]
    house.serve("--storage", store, "--dir", "a")
    if apart:
        urls.append(f"http://127.0.0.1:{free_port()}")
        there = house.start(
            "serve", "app.py", "--storage", store, "--dir", "b", "--port", urls[1].rpartition(":")[2]
        )
        assert there.stdout is not None
        there.stdout.readline()
    house.start("worker", "app.py", "--url", urls[0])
    house.until_logged(f"connected to .* by {transport}")
    # when
    house.start("worker", "app.py", "--url", urls[-1])
    # then: the first worker says who has its id, and its orchestrator names both
    house.until_logged(
        r"has another worker named 'twin' now \(127\.0\.0\.1:\d+ .*give each its own WORKER_ID"
    )
    found = r"worker twin has connected from 127\.0\.0\.1:\d+ \(.*\).* while it was connected from 127\.0\.0\.1:\d+"
    house.until_logged(found + (".*" if not apart else ""))
    assert house.logs().count("has another worker named") == 1
    assert (", at instance " in house.logs()) is apart


def test_a_worker_that_was_killed_is_disconnected_whichever_orchestrator_is_asked(
    house: House, server: RedisServer
) -> None:
    store, port = f"redis://127.0.0.1:{server.port}/7", free_port()
    urls = [house.url, f"http://127.0.0.1:{port}"]
    house.set(CLIENT_TOKEN="c" * 20, WORKER_TOKEN="w" * 20)
    house.serve("--storage", store, "--dir", "a")
    there = house.start("serve", "app.py", "--storage", store, "--dir", "b", "--port", str(port))
    assert there.stdout is not None
    there.stdout.readline()
    worker = house.start("worker", "app.py", "--url", urls[0])
    house.until_logged("connected to .* by stream")
    # when
    house.end(worker, signal.SIGKILL)
    # then: long before its lease is over, both say so
    for url in urls:
        (told,) = json.loads(house.said("workers", "list", "--json", REGISTA_URL=url))["items"]
        assert told["state"] == "disconnected", told
