"""Connection: of an answer the head is read, and the rest decides whether the connection can be used again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.webhooks.connection import BadAnswer, Head, is_whole, read_head


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> Head:
    return read_head("\r\n".join([status, *lines]).encode("latin-1"))


def test_a_head_says_its_status_the_length_of_its_body_and_when_to_come_back() -> None:
    assert head("content-LENGTH:  5 ", "X: y") == Head(200, 5)
    assert head("Retry-After: 17", "Content-Length: 0", status="HTTP/1.1 503 ") == Head(503, 0, "17")
    assert head(status="HTTP/1.1 204") == Head(204, 0)
    assert read_head(b"HTTP/1.1 202 Fine\nContent-Length: 2") == Head(202, 2)


@pytest.mark.parametrize(
    "status",
    [
        "HTTP/2 200 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 000 OK",
        "HTTP/1.1 099 OK",
        "SSH-2.0-x",
        "",
        "HTTP/1.1 abc",
    ],
)
def test_what_is_no_answer_is_called_so(status: str) -> None:
    with pytest.raises(BadAnswer):
        head(status=status)


@pytest.mark.parametrize(
    "lines",
    [
        ("Connection: Close", "Content-Length: 0"),
        (),
        ("Content-Length: five",),
        ("Content-Length: -1",),
        ("Content-Length: +0",),
        ("Content-Length: 0", "Content-Length: 1"),
        ("Content-Length: 1", "Content-Length: 0"),
        ("Content-Length: 1", "X: y", " Content-Length: 0"),
        ("Content-Length: 0", "\t1"),
        ("Content-Length : 0",),
        ("Content-Length : 1", "Content-Length: 0"),
        ("no colon", "Content-Length: 0"),
        ("X: y\rContent-Length: 1", "Content-Length: 0"),
        ("X: \0", "Content-Length: 0"),
        ("Content-Length: \x0b0",),
        ("Transfer-Encoding: chunked\x0b",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: gzip", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 1"),
        ("Transfer-Encoding: chunked", "Connection: x, CLOSE"),
        ("Connection: close", "Connection: keep-alive", "Content-Length: 0"),
    ],
)
def test_a_body_that_ends_with_the_connection_is_never_whole(lines: tuple[str, ...]) -> None:
    for body in (b"", b"x", b"0\r\n\r\n"):
        assert not is_whole(head(*lines), body)


def test_a_connection_that_speaks_something_else_from_now_on_is_used_once() -> None:
    assert not is_whole(head("Content-Length: 0", "Upgrade: x", status="HTTP/1.1 101 Fine"), b"")


@pytest.mark.parametrize("size", ["0x0", "+0", "-0", "0_0", " 0", "0 ", "0;a=b", "000000000", "", "g"])
def test_a_size_that_others_could_read_in_another_way_is_no_size(size: str) -> None:
    assert not is_whole(head("Transfer-Encoding: chunked"), f"{size}\r\n\r\n".encode())


def test_a_chunk_that_is_longer_than_it_says_is_none() -> None:
    told = head("Transfer-Encoding: chunked")
    assert is_whole(told, b"2\r\nok\r\n0\r\n\r\n")
    assert not is_whole(told, b"2\r\nokay0\r\n\r\n")


def test_a_connection_of_the_old_kind_is_used_once() -> None:
    assert not is_whole(head("Content-Length: 0", status="HTTP/1.0 200 OK"), b"")


def test_a_body_is_whole_when_all_of_it_is_there_and_nothing_besides() -> None:
    told = head("Content-Length: 2")
    assert [is_whole(told, body) for body in (b"", b"o", b"ok", b"ok!")] == [False, False, True, False]


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.binary(min_size=1, max_size=10))
def test_chunks_are_whole_with_the_last_one_and_not_before(chunks: list[bytes], more: bytes) -> None:
    told = head("Transfer-Encoding: chunked")
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    assert is_whole(told, body)
    assert not is_whole(told, body + more)
    assert not any(is_whole(told, body[:end]) for end in range(len(body)))


@given(st.binary(max_size=60))
def test_no_bytes_whatever_break_the_reading(raw: bytes) -> None:
    is_whole(head("Transfer-Encoding: chunked"), raw)
    try:
        read_head(raw)
    except BadAnswer:
        return
    assert raw.startswith(b"HTTP/1.")
