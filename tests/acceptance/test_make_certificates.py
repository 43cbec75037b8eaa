"""deploy/make-certificates: what it makes, what it keeps, and what it says about both."""

import subprocess
from pathlib import Path

from regista.tls import TlsFiles, inspect_certificate
from tests.conftest import require_binary

_SCRIPT = Path(__file__).parents[2] / "deploy" / "make-certificates"


def made(folder: Path, *names: str) -> str:
    require_binary("openssl")
    done = subprocess.run([str(_SCRIPT), str(folder), *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_certificate_is_for_this_machine_too_and_what_is_there_is_kept(tmp_path: Path) -> None:
    first = made(tmp_path, "regista.example.org", "worker:w")
    assert f"made {tmp_path}/ca.pem" in first
    assert f"made {tmp_path}/w.pem" in first
    served = TlsFiles(str(tmp_path / "server.pem"), str(tmp_path / "server.key"))
    assert inspect_certificate(served).names == ("regista.example.org", "localhost", "127.0.0.1")

    before = (tmp_path / "server.pem").read_bytes()
    again = made(tmp_path, "other.example.org", "worker:w")
    assert f"kept {tmp_path}/server.pem as it is (DNS:regista.example.org" in again
    assert f"to have it made anew: rm {tmp_path}/w.pem {tmp_path}/w.key" in again
    assert (tmp_path / "server.pem").read_bytes() == before


def test_a_name_that_is_given_is_not_there_twice_and_a_worker_alone_needs_no_server(tmp_path: Path) -> None:
    made(tmp_path / "one", "localhost", "127.0.0.1")
    served = TlsFiles(str(tmp_path / "one/server.pem"), str(tmp_path / "one/server.key"))
    assert inspect_certificate(served).names == ("localhost", "127.0.0.1")
    assert "server" not in made(tmp_path / "two", "worker:w")
    assert not (tmp_path / "two/server.pem").exists()
