"""Processes that must end, and drains that can be taken back."""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regista import Client, Worker
from regista.clock import SystemClock
from regista.config import Connection
from regista.errors import RegistaError
from tests.acceptance.processes import House
from tests.acceptance.serving import serving
from tests.acceptance.test_metrics import Moody

#: Each starts processes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(40)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.close()


def dead_pid() -> int:
    """Of a process that was, and is no more."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    return gone.pid


def test_a_child_of_dev_that_starts_after_its_parent_has_died_ends_by_itself(house: House) -> None:
    child = house.start("dev", "app.py", "--no-reload", "--parent", str(dead_pid()))

    with child:
        child.wait(8)


def test_a_signal_ends_a_start_that_still_waits_for_the_store(house: House) -> None:
    # given a store that somebody else has, which a start waits for
    house.serve("--storage", "sqlite:jobs.db")
    second = house.start("serve", "app.py", "--storage", "sqlite:jobs.db", "--port", "0")
    house.until(lambda: Path(f"/proc/{second.pid}/fd").exists(), "its start")
    time.sleep(1.5)
    assert second.poll() is None

    # when it is told to stop
    began = time.monotonic()
    code = house.end(second)

    # then it does, and does not wait for the store any longer
    assert code in (0, -15)
    assert time.monotonic() - began < 4


async def test_a_command_says_soon_that_it_waits_for_the_store_and_why(tmp_path: Path) -> None:
    store = Moody(SystemClock())
    async with serving(storage=store) as served:
        store.mood = "away"
        command = [sys.executable, "-m", "regista", "jobs", "show", "any", "--url", served.url]
        env = House(tmp_path).env | {"CLIENT_TOKEN": "t-ops", "REGISTA_TIMEOUT_SECONDS": "3"}

        done = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True)

    waiting, end = done.stderr.splitlines()
    assert re.search(r"away.*trying again for \d s", waiting)
    assert end == "regista: away"
    assert done.returncode != 0


async def test_whoever_waits_is_told_within_two_seconds_and_not_all_the_time() -> None:
    store, told = Moody(SystemClock()), []
    async with serving(storage=store) as served:
        connection = Connection(url=served.url, timeout_s=4.0, token="t-ops")
        began = time.monotonic()

        def report(why: str, left_s: float) -> None:
            told.append((why, left_s, time.monotonic() - began))

        async with Client(connection=connection, on_wait=report) as client:
            store.mood = "away"
            with pytest.raises(RegistaError):
                await client.get("any")

    ((why, left_s, after_s),) = told
    assert "away" in why
    assert after_s < 2
    assert 1 < left_s <= 4


async def test_a_drain_can_be_taken_back(tmp_path: Path) -> None:
    async with serving(workers=[Worker("hands")]) as served, Client(served.url, "t-ops") as client:
        await client.drain("hands")
        (drained,) = await client.workers()
        command = [sys.executable, "-m", "regista", "workers", "undrain", "hands", "--url", served.url]
        env = House(tmp_path).env | {"CLIENT_TOKEN": "t-ops"}

        done = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True)
        (back,) = await client.workers()

    assert (done.returncode, done.stdout) == (0, "hands takes tasks again\n"), done.stderr
    assert (drained["state"], back["state"]) == ("draining", "ready")
