import asyncio
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from regista.cli.authorities import read_late
from tests.certificates import Authority

#: What a command does before it is performed; then, what aiohttp's contexts know, and whether Python's own do at once.
PROGRAM = """
import ssl
from regista.cli.entry import _function
_function("serve.serve")
from aiohttp import connector
for context in (connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED, ssl.create_default_context()):
    print(context.cert_store_stats()["x509_ca"])
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("trusted"))


@pytest.fixture(autouse=True)
def _trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system trusts this authority, and nobody else."""
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca)
    monkeypatch.setenv("SSL_CERT_DIR", str(authority.folder / "nothing"))


def late() -> ssl.SSLContext:
    with read_late():
        return ssl.create_default_context()


@asynccontextmanager
async def served_by(authority: Authority) -> AsyncIterator[int]:
    """A port that speaks TLS with a certificate of this authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.cert(), authority.key())
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def connect(port: int, context: ssl.SSLContext) -> None:
    _, writer = await asyncio.open_connection("localhost", port, ssl=context)
    writer.close()
    await writer.wait_closed()


def test_nothing_is_read_before_a_context_is_used() -> None:
    context = late()

    assert context.cert_store_stats()["x509_ca"] == 0
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname

    context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    assert context.cert_store_stats()["x509_ca"] == 1


async def test_whom_the_system_trusts_is_trusted_the_first_time_and_the_second(authority: Authority) -> None:
    context = late()

    async with served_by(authority) as port:
        await connect(port, context)
        await connect(port, context)


async def test_a_stranger_is_refused(tmp_path: Path) -> None:
    async with served_by(Authority(tmp_path)) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(port, late())


def test_contexts_that_are_made_afterwards_read_at_once() -> None:
    late()

    assert ssl.create_default_context().cert_store_stats()["x509_ca"] == 1


def test_a_command_loads_aiohttp_without_reading_and_leaves_python_as_it_was() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert answer.stdout.split() == ["0", "0", "1"]
