"""TLS, one-time passwords and revocation as people use them: with the command line, in real processes."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import House
from tests.certificates import Authority

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    house.url = house.url.replace("http:", "https:")
    house.set(REGISTA_URL=house.url, ORCHESTRATOR_URL=house.url)
    yield house
    house.close()


def until(holds: Callable[[], bool], house: House) -> None:
    give_up = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < give_up, house.logs()
        time.sleep(0.1)


def test_a_house_with_tls_from_the_first_start_to_a_renewal(house: House, tmp_path: Path) -> None:
    ours, next_ones = Authority(tmp_path / "ours", "render-7"), Authority(tmp_path / "next")
    served = tmp_path / "served"
    shutil.copytree(ours.folder, served)
    paths = {"TLS_CERT_PATH": str(served / "server.pem"), "TLS_KEY_PATH": str(served / "server.key")}

    # A wrong key stops the start, in one line.
    house.set(**paths, TLS_CA_PATH=ours.ca)
    wrong = house.run("serve", "app.py", TLS_KEY_PATH=ours.key("render-7"))
    assert wrong.returncode == 2
    assert "regista: TLS_KEY_PATH: expected the key of" in wrong.stderr

    process = house.serve()
    house.set(TLS_CERT_PATH="", TLS_KEY_PATH="")

    # A worker with a password: made, used, taken back.
    secret = house.said("tokens", "otp", "render-9").strip()
    house.set(REGISTA_TOKEN=secret, WORKER_ID="render-9", WORKER_TOKEN="")
    house.start("worker", "app.py", "--dir", "elsewhere")
    told = house.said("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait")
    assert told.splitlines()[-1] == '"Hello, Ada!"'
    assert json.loads(house.said("tokens", "revoke", "render-9", "--json")) == {
        "worker_id": "render-9",
        "logins": 1,
        "passwords": 0,
    }
    assert "no worker of this id has a login" in house.said("tokens", "revoke", "render-9")
    until(lambda: "rejected the registration" in house.logs(), house)
    assert secret not in house.logs()

    # A worker with a certificate, and nothing else.
    house.set(REGISTA_TOKEN="", WORKER_ID="render-7")
    house.set(TLS_CERT_PATH=ours.cert("render-7"), TLS_KEY_PATH=ours.key("render-7"))
    house.start("worker", "app.py", "--dir", "elsewhere")
    told = house.said("jobs", "run", "greet", "--input", '{"name": "Bob"}', "--wait")
    assert told.splitlines()[-1] == '"Hello, Bob!"'
    house.set(TLS_CERT_PATH="", TLS_KEY_PATH="")

    # Renewed without a restart.
    for name in ("server.pem", "server.key"):
        shutil.copy(next_ones.folder / name, served / name)
    os.kill(process.pid, signal.SIGHUP)
    until(lambda: house.run("jobs", "list", TLS_CA_PATH=next_ones.ca).returncode == 0, house)
    plain = house.run(
        "jobs", "list", REGISTA_URL=house.url.replace("https:", "http:"), REGISTA_TIMEOUT_SECONDS="2"
    )
    assert "if it speaks TLS, write https:// in its address" in plain.stderr
    until(lambda: "somebody speaks plain http to this port" in house.logs(), house)
    stranger = house.run("jobs", "list")
    assert (stranger.returncode, "TLS_CA_PATH" in stranger.stderr) == (6, True)
    assert process.poll() is None
