"""Against what really happens at a port."""

import asyncio
import socket
import ssl
import threading

import aiohttp
import pytest

from regista.connection_errors import describe, is_refused


def failure_of(url: str) -> Exception:
    async def ask() -> Exception:
        async with aiohttp.ClientSession() as http:
            with pytest.raises((aiohttp.ClientError, OSError)) as caught:
                await http.get(url)
            return caught.value

    return asyncio.run(ask())


def test_nobody_who_listens_is_a_refused_connection() -> None:
    error = failure_of("http://127.0.0.1:9")

    assert describe(error) == "connection refused"
    assert is_refused(error)


def test_nobody_who_listens_is_one_at_every_address_of_a_name() -> None:
    assert is_refused(failure_of("http://localhost:9"))


def test_plain_http_where_tls_was_expected_says_what_to_write() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        error = failure_of(f"https://127.0.0.1:{server.getsockname()[1]}")
        thread.join()

    assert describe(error) == "it speaks http, not https; write http:// in its address"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer in time"),
        (socket.gaierror(-2, "Name or service not known"), "there is no host of this name"),
        (ssl.SSLError(1, "[SSL] something else"), "something else"),
        (aiohttp.ClientError("HTTP 500 for the registration"), "HTTP 500 for the registration"),
        (aiohttp.ClientError(), "ClientError"),
        (OSError("no number"), "no number"),
    ],
)
def test_every_other_trouble_has_words_too(error: Exception, words: str) -> None:
    assert words in describe(error)
    assert not is_refused(error)


@pytest.mark.parametrize("error", [aiohttp.ServerDisconnectedError(), ConnectionResetError(104, "reset")])
def test_who_hangs_up_and_never_answered_may_want_to_be_spoken_to_in_another_way(error: Exception) -> None:
    assert "if it speaks TLS, write https://" in describe(error, "http://127.0.0.1:1")
    assert "it may want a client certificate (TLS_CERT_PATH" in describe(error, "https://127.0.0.1:1")
    assert "TLS" not in describe(error)
    assert describe(ConnectionRefusedError(111, "refused"), "http://127.0.0.1:1") == "connection refused"


def _alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "it wants a client certificate"),
        ("TLSV1_ALERT_UNKNOWN_CA", "it does not trust our client certificate"),
        ("WRONG_VERSION_NUMBER", "it speaks http, not https"),
    ],
)
def test_an_alert_of_the_other_side_says_what_to_do(reason: str, words: str) -> None:
    assert words in describe(_alert(reason))
