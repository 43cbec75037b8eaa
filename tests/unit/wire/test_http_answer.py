"""Answers in HTTP/1.1: what a head says about the body, and a body wherever its bytes were cut."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.wire.http_answer import (
    CHUNKED,
    UNCLEAR,
    UNTIL_CLOSED,
    BadAnswer,
    Body,
    Head,
    body_of,
    read_head,
    unpacked,
)


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> Head:
    return read_head("\r\n".join([status, *lines]).encode("latin-1"))


def told(*lines: str, status: str = "HTTP/1.1 200 OK") -> tuple[int, int, bool]:
    found = head(*lines, status=status)
    return found.status, found.length, found.keeps


def fed(length: Head, *pieces: bytes) -> Body:
    body = body_of(length)
    for piece in pieces:
        body.feed(piece)
    return body


def is_whole(length: Head, *pieces: bytes) -> bool:
    """All of it has come, and nothing besides."""
    try:
        body = fed(length, *pieces)
    except BadAnswer:
        return False
    return body.whole and not body.overrun


# -- heads -------------------------------------------------------------------------------------------


def test_a_head_says_its_status_the_length_of_its_body_and_more() -> None:
    assert told("content-LENGTH:  5 ", "X: y") == (200, 5, True)
    assert told(status="HTTP/1.1 204") == (204, 0, True)
    found = read_head(b"HTTP/1.1 503 Fine\nContent-Length: 2\nRetry-After: 17")
    assert (found.status, found.length, found.find(b"retry-after")) == (503, 2, "17")
    assert found.find(b"date") is None


def test_what_is_said_twice_is_said_in_a_list() -> None:
    found = head("Via: a", "Content-Length: 0", "via: b")
    assert (found.length, found.find(b"via")) == (0, "a, b")


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
    ],
)
def test_a_length_that_can_be_understood_in_two_ways_is_not_believed(lines: tuple[str, ...]) -> None:
    assert told(*lines) == (200, UNCLEAR, False)
    for body in (b"", b"x", b"0\r\n\r\n"):
        assert not is_whole(head(*lines), body)


def test_a_connection_that_speaks_something_else_from_now_on_is_used_once() -> None:
    assert told("Content-Length: 0", "Upgrade: x", status="HTTP/1.1 101 Fine") == (101, UNCLEAR, False)


@pytest.mark.parametrize(
    ("lines", "length"),
    [
        (("Connection: Close", "Content-Length: 3"), 3),
        (("Transfer-Encoding: chunked", "Connection: x, CLOSE"), CHUNKED),
        (("Connection: close", "Connection: keep-alive", "Content-Length: 0"), 0),
        ((), UNTIL_CLOSED),
    ],
)
def test_who_hangs_up_after_the_answer_is_believed(lines: tuple[str, ...], length: int) -> None:
    assert told(*lines) == (200, length, False)


def test_a_connection_of_the_old_kind_is_used_once() -> None:
    assert told("Content-Length: 0", status="HTTP/1.0 200 OK") == (200, 0, False)


@given(st.binary(max_size=60))
def test_no_bytes_whatever_break_the_reading(raw: bytes) -> None:
    is_whole(head("Transfer-Encoding: chunked"), raw)
    try:
        read_head(raw)
    except BadAnswer:
        return
    assert raw.startswith(b"HTTP/1.")


# -- bodies ------------------------------------------------------------------------------------------


def test_a_body_is_whole_when_all_of_it_is_there_and_nothing_besides() -> None:
    length = head("Content-Length: 2")
    assert [is_whole(length, body) for body in (b"", b"o", b"ok", b"ok!")] == [False, False, True, False]
    assert fed(length, b"o", b"k").content() == b"ok"
    assert fed(length, b"o", b"k!").content() == b"ok"
    assert not is_whole(length, b"ok", b"!")


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    body = fed(head(), b"o", b"k")
    assert not body.whole
    body.close()
    assert (body.whole, body.content()) == (True, b"ok")


def test_the_end_of_the_connection_makes_half_a_body_no_whole_one() -> None:
    for length in (head("Content-Length: 3"), head("Transfer-Encoding: chunked")):
        body = fed(length, b"2\r")
        body.close()
        assert not body.whole


@pytest.mark.parametrize("size", ["0x0", "+0", "-0", "0_0", " 0", "0 ", "000000000", "", "g"])
def test_a_size_that_others_could_read_in_another_way_is_no_size(size: str) -> None:
    with pytest.raises(BadAnswer):
        fed(head("Transfer-Encoding: chunked"), f"{size}\r\n\r\n".encode())


def test_a_chunk_that_is_longer_than_it_says_is_none() -> None:
    length = head("Transfer-Encoding: chunked")
    assert is_whole(length, b"2\r\nok\r\n0\r\n\r\n")
    with pytest.raises(BadAnswer):
        fed(length, b"2\r\nokay0\r\n\r\n")


def test_a_line_between_chunks_has_an_end() -> None:
    with pytest.raises(BadAnswer):
        fed(head("Transfer-Encoding: chunked"), b"0" * 5000)


def test_what_is_said_about_chunks_is_passed_over() -> None:
    body = fed(head("Transfer-Encoding: chunked"), b'2;a="b"\r\nok\r\n0 ;c\r\nDate: x\r\n\r\n')
    assert (body.whole, body.overrun, body.content()) == (True, False, b"ok")


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=5),
    st.binary(min_size=1, max_size=10),
    st.integers(1, 20),
)
def test_chunks_are_whole_with_the_last_one_and_not_before(
    chunks: list[bytes], more: bytes, cut: int
) -> None:
    length = head("Transfer-Encoding: chunked")
    raw = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    assert is_whole(length, raw)
    assert not is_whole(length, raw + more)
    assert not is_whole(length, raw, more)
    assert not any(is_whole(length, raw[:end]) for end in range(1, len(raw)))
    body = fed(length, *[raw[at : at + cut] for at in range(0, len(raw), cut)])
    assert (body.whole, body.overrun, body.content()) == (True, False, b"".join(chunks))


# -- packed ------------------------------------------------------------------------------------------


def test_what_was_packed_is_unpacked() -> None:
    packed = gzip.compress(b"ok")
    assert unpacked(head("Content-Encoding: GZIP"), packed) == b"ok"
    assert unpacked(head("Content-Encoding: identity"), b"ok") == b"ok"
    assert unpacked(head(), b"ok") == b"ok"
    assert unpacked(head("Content-Encoding: gzip"), b"") == b""


@pytest.mark.parametrize(
    ("coding", "content"),
    [
        ("gzip", b"ok"),
        # Without the time of day: the processes that share the tests must all give them the same names.
        ("gzip", gzip.compress(b"ok", mtime=0)[:-3]),
        ("gzip", gzip.compress(b"ok", mtime=0) + b"!"),
        ("br", b"ok"),
        ("gzip, gzip", b"ok"),
    ],
)
def test_what_was_packed_in_another_way_is_no_answer(coding: str, content: bytes) -> None:
    with pytest.raises(BadAnswer, match="gzip"):
        unpacked(head(f"Content-Encoding: {coding}"), content)
