"""Failed handshakes, at a real port and by their causes."""

import asyncio
import logging
import ssl
from pathlib import Path

import aiohttp
import pytest

from regista.tls import EVERY_S, Complaints, ServerTls, TlsFiles, cause_of, client_context
from tests.certificates import Authority


def failure(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL] {reason}")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("HTTP_REQUEST", "it takes https:// only"),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "TLS_REQUIRE_CLIENT_CERT wants one"),
        ("TLSV1_ALERT_UNKNOWN_CA", "does not trust our certificate"),
        ("NO_SHARED_CIPHER", "NO_SHARED_CIPHER"),
    ],
)
def test_every_cause_has_plain_words(reason: str, words: str) -> None:
    assert words in cause_of(failure(reason))


def test_a_cause_is_told_once_a_minute_and_then_how_often_it_came(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    complaints = Complaints(lambda: now[0])
    for reason in ("HTTP_REQUEST", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL", "HTTP_REQUEST"):
        complaints.take(failure(reason))
    assert len(caplog.records) == 2
    now[0] += EVERY_S
    complaints.take(failure("HTTP_REQUEST"))
    assert "https:// only (2 more since the last time)" in caplog.messages[-1]


def test_whoever_serves_tls_says_why_a_handshake_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other", "w")
    served = ServerTls(TlsFiles(ours.cert(), ours.key(), ours.ca), require=True)
    stranger = TlsFiles(other.cert("w"), other.key("w"), ours.ca)

    async def main() -> None:
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=served.context
        )
        port = server.sockets[0].getsockname()[1]
        calls = [("http", TlsFiles()), ("https", TlsFiles(ca=ours.ca)), ("https", stranger)]
        for scheme, files in calls:
            connector = aiohttp.TCPConnector(ssl=client_context(files) or True)
            async with aiohttp.ClientSession(connector=connector) as http:
                with pytest.raises((aiohttp.ClientError, OSError)):
                    await http.get(f"{scheme}://127.0.0.1:{port}")
        server.close()
        await server.wait_closed()

    with caplog.at_level(logging.WARNING, "regista.tls"):
        asyncio.run(main())

    said = [line for line in caplog.messages if "a TLS handshake failed" in line]
    marks = ("https:// only", "shows no client certificate", "does not vouch")
    assert len(said) == len(marks)
    assert all(any(mark in line for line in said) for mark in marks)
