"""Heads: what is remembered of them changes how fast a request is understood, and never as what."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import uvloop
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from hypothesis import given, settings
from hypothesis import strategies as st

from regista.api import conversation
from regista.api.connection import Connection
from regista.api.heads import Heads, Whole

#: A request like most.
USUAL = b"POST /a?b=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX-Note: n\r\n\r\nhello"
LONGER = USUAL.replace(b"5", b"12").replace(b"hello", b"hello, world")
WITHOUT_BODY = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def line() -> Iterator[BaseProtocol]:
    loop = asyncio.new_event_loop()
    yield BaseProtocol(loop)
    loop.close()


def parsed(line: BaseProtocol, data: bytes) -> RawRequestMessage:
    """What the parser makes of it."""
    [(message, _)], _, _ = HttpRequestParser(line, line._loop, 2**16).feed_data(data)
    assert isinstance(message, RawRequestMessage)
    return message


def knowing(line: BaseProtocol, *requests: bytes) -> Heads:
    """Heads that have seen these, one by one."""
    heads = Heads()
    for data in requests:
        heads.parsed(data, 1, parsed(line, data))
    return heads


def fields(message: RawRequestMessage) -> list[Any]:
    """All of it, with the headers in their order."""
    flags = [message.version, message.should_close, message.compression, message.upgrade, message.chunked]
    named = [message.method, message.path, message.url, message.raw_headers, list(message.headers.items())]
    return named + flags


# Finding.


def test_nothing_is_found_before_anything_came(line: BaseProtocol) -> None:
    assert Heads().find(USUAL, line) is None
    assert Heads().find(b"", line) is None


@pytest.mark.parametrize(
    "then", [USUAL, LONGER, USUAL.replace(b"hello", b"\r\n\r\n.")], ids=["same", "longer", "ends"]
)
def test_a_head_that_came_before_is_understood_with_the_body_of_now(line: BaseProtocol, then: bytes) -> None:
    heads = knowing(line, USUAL)
    for _ in range(2):
        found = heads.find(then, line)
        assert found is not None
        message, content = found
        assert fields(message) == fields(parsed(line, then))
        assert content.read_nowait() == then.partition(b"\r\n\r\n")[2]


def test_a_request_without_a_body_has_the_one_that_all_of_them_have(line: BaseProtocol) -> None:
    heads = knowing(line, WITHOUT_BODY, USUAL)
    found = heads.find(WITHOUT_BODY, line)
    assert found is not None
    assert found[1] is EMPTY_PAYLOAD
    assert fields(found[0]) == fields(parsed(line, WITHOUT_BODY))


def test_a_body_may_be_empty_at_one_time_and_not_at_another(line: BaseProtocol) -> None:
    empty = USUAL.replace(b"5", b"0").removesuffix(b"hello")
    heads = knowing(line, USUAL)
    for data in (empty, LONGER, empty):
        found = heads.find(data, line)
        assert found is not None
        assert fields(found[0]) == fields(parsed(line, data))
        assert (found[1] is EMPTY_PAYLOAD) is (data is empty)


def test_a_head_that_differs_in_any_byte_is_not_found(line: BaseProtocol) -> None:
    heads = knowing(line, USUAL)
    for at in range(len(USUAL) - len(b"hello")):
        for other in {b"\x00", b" ", b"\r", b"\n", b"4", b"~"} - {USUAL[at : at + 1]}:
            assert heads.find(USUAL[:at] + other + USUAL[at + 1 :], line) is None


def test_a_body_that_is_cut_or_goes_on_is_not_found(line: BaseProtocol) -> None:
    heads = knowing(line, USUAL)
    assert not [end for end in range(len(USUAL)) if heads.find(USUAL[:end], line)]
    for more in (b"!", b"\r\n", WITHOUT_BODY, USUAL):
        assert heads.find(USUAL + more, line) is None
    assert heads.find(USUAL, line) is not None


@pytest.mark.parametrize(
    "told", ["05", "+5", "-5", "5 ", " 5", "5\t", "0x5", "5,5", "5\r\n ", "", "0000000005", "²"]
)
def test_a_length_that_can_be_read_in_two_ways_is_not_found(line: BaseProtocol, told: str) -> None:
    odd = USUAL.replace(b"Length: 5", b"Length: " + told.encode())
    assert knowing(line, USUAL).find(odd, line) is None


def test_a_second_length_is_part_of_another_head(line: BaseProtocol) -> None:
    twice = USUAL.replace(b"Content-Length: 5\r\n", b"Content-Length: 5\r\nContent-Length: 5\r\n")
    assert knowing(line, USUAL).find(twice, line) is None


def test_a_length_in_the_value_of_a_header_is_none(line: BaseProtocol) -> None:
    note = WITHOUT_BODY.replace(b"\r\n\r\n", b"\r\nX-Note: Content-Length: 5\r\n\r\n")
    heads = knowing(line, note)
    assert heads.find(note, line) is not None
    assert heads.find(note + b"hello", line) is None
    assert heads.find(note.replace(b"5", b"6"), line) is None


def test_a_length_in_a_body_is_none(line: BaseProtocol) -> None:
    told = (
        USUAL.replace(b"Content", b"content")
        .replace(b"5", b"24")
        .replace(b"hello", b"\r\nContent-Length: 24\r\n\r\n")
    )
    heads = knowing(line, USUAL, told)
    assert heads.find(told, line) is None
    assert heads.find(told.replace(b"Content-Length: 24", b"Content-Length: 25") + b"!", line) is None


# Remembering.


@pytest.mark.parametrize(
    "odd",
    [
        USUAL.replace(b"/1.1", b"/1.0"),
        USUAL.replace(b"/1.1", b"/1.0").replace(b"X-Note: n", b"Connection: keep-alive"),
        USUAL.replace(b"X-Note: n", b"Connection: close"),
        USUAL.replace(b"X-Note: n", b"Connection: upgrade\r\nUpgrade: x"),
        USUAL.replace(b"X-Note: n", b"Expect: 100-continue"),
        USUAL.replace(b"X-Note: n", b"Content-Encoding: gzip"),
        USUAL.replace(b"X-Note: n", b"Content-Encoding: other"),
        USUAL.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked").replace(b"hello", b"0\r\n\r\n"),
        USUAL.replace(b"Content-Length", b"content-length"),
        USUAL.replace(b"Length: ", b"Length:"),
        USUAL.replace(b": 5", b": 05"),
        WITHOUT_BODY.replace(b"GET /", b"CONNECT x:1"),
    ],
    ids=lambda odd: str(odd[:90]),
)
def test_what_is_not_plain_is_never_found(line: BaseProtocol, odd: bytes) -> None:
    head = odd[: odd.index(b"\r\n\r\n") + 4]
    for heads in (knowing(line, USUAL, odd), knowing(line, USUAL, head)):
        assert heads.find(odd, line) is None
        assert heads.find(USUAL, line) is None  # it may be part of a body


@pytest.mark.parametrize("size", [1, 4])
def test_while_a_body_is_coming_nothing_is_found_and_after_it_all_is(line: BaseProtocol, size: int) -> None:
    heads = knowing(line, WITHOUT_BODY, USUAL)
    heads.parsed(USUAL[:-5], 1, parsed(line, USUAL))
    for at in range(0, 5, size):
        assert heads.find(WITHOUT_BODY, line) is None
        heads.parsed(b"hello"[at : at + size], 0, None)
    assert heads.find(WITHOUT_BODY, line) is not None
    assert heads.find(USUAL, line) is not None


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (USUAL[:20], 0),
        (USUAL + USUAL, 2),
        (USUAL + b"P", 1),
        (USUAL + b"\r\n", 1),
        (b"\r\n", 0),
        (b"\r\n\r\n" + USUAL, 1),
    ],
    ids=["half a head", "two", "one and a half", "more", "nothing", "something before"],
)
def test_once_nobody_knows_where_a_request_begins_nothing_is_found(
    line: BaseProtocol, data: bytes, messages: int
) -> None:
    heads = knowing(line, USUAL)
    heads.parsed(data, messages, parsed(line, USUAL) if messages else None)
    heads.parsed(USUAL, 1, parsed(line, USUAL))
    assert heads.find(USUAL, line) is None


def test_a_body_that_goes_on_into_something_else_is_the_end_of_finding(line: BaseProtocol) -> None:
    heads = knowing(line, USUAL, USUAL[:-5])
    heads.parsed(b"hello" + USUAL, 1, parsed(line, USUAL))
    assert heads.find(USUAL, line) is None


def test_what_could_not_be_parsed_is_the_end_of_finding(line: BaseProtocol) -> None:
    heads = knowing(line, USUAL)
    heads.parsed(b"\x16\x03\x01", 1, object())
    assert heads.find(USUAL, line) is None


def test_a_parser_that_was_only_told_to_go_on_changes_nothing(line: BaseProtocol) -> None:
    heads = knowing(line, USUAL)
    heads.parsed(b"", 0, None)
    assert heads.find(USUAL, line) is not None


def test_no_more_than_four_heads_are_kept(line: BaseProtocol) -> None:
    asked = [USUAL.replace(b"/a", b"/%d" % n) for n in range(5)]
    assert all(knowing(line, *asked[:4]).find(data, line) for data in asked[:4])
    heads = knowing(line, *asked)
    assert [bool(heads.find(data, line)) for data in asked] == [False, False, False, False, True]


@pytest.mark.parametrize(("size", "is_kept"), [(2048, True), (2049, False)])
def test_a_head_is_kept_up_to_a_length_that_its_digits_are_no_part_of(
    line: BaseProtocol, size: int, is_kept: bool
) -> None:
    missing = size - len(USUAL) + len(b"5hello")
    long = USUAL.replace(b"X-Note: n", b"X-Note: n" + b"n" * missing)
    heads = knowing(line, WITHOUT_BODY, long)
    assert (heads.find(long, line) is not None) is is_kept
    assert heads.find(WITHOUT_BODY, line) is not None  # where it ends is known all the same


def test_a_head_of_many_lines_is_not_kept(line: BaseProtocol) -> None:
    many = USUAL.replace(b"X-Note: n\r\n", b"".join(b"X-%d: n\r\n" % n for n in range(31)))
    heads = knowing(line, WITHOUT_BODY, many)
    assert heads.find(many, line) is None
    assert heads.find(WITHOUT_BODY, line) is not None


# A body in one piece.


def test_a_whole_body_is_taken_once(line: BaseProtocol) -> None:
    whole = Whole(b"hello", line)
    assert (whole.is_eof(), whole.at_eof(), whole.total_bytes, whole.total_raw_bytes) == (True, False, 5, 5)
    assert whole.take() == b"hello"
    assert whole.take() is None
    assert (whole.at_eof(), whole.read_nowait()) == (True, b"")


def test_a_whole_body_that_somebody_has_read_from_is_not_taken(line: BaseProtocol) -> None:
    whole = Whole(b"hello", line)
    assert whole.read_nowait(2) == b"he"
    assert whole.take() is None
    assert whole.read_nowait() == b"llo"


def test_a_whole_body_is_not_taken_after_the_answer(line: BaseProtocol) -> None:
    whole = Whole(b"hello", line)
    whole.set_exception(ValueError("over"))
    assert whole.take() is None
    with pytest.raises(ValueError, match="over"):
        whole.read_nowait()


#: Ways to read on.
STEPS = st.sampled_from(
    [
        ("read", 2),
        ("read", 0),
        ("read", -1),
        ("readany",),
        ("readchunk",),
        ("readexactly", 3),
        ("readline",),
        ("readuntil", b", "),
        ("read_nowait", 3),
        ("read_nowait",),
        ("wait_eof",),
        ("set_read_chunk_size", 4),
    ]
)


@given(st.sampled_from([b"x", b"hello, world", b"a\nb\n\nc"]), st.lists(STEPS, max_size=8))
async def test_a_whole_body_can_be_read_in_all_ways_like_any_other(
    body: bytes, steps: list[tuple[Any, ...]]
) -> None:
    async def read(content: StreamReader) -> list[Any]:
        said = []
        for name, *how in steps:
            try:
                result = getattr(content, name)(*how)
                said.append(await result if asyncio.iscoroutine(result) else result)
            except asyncio.IncompleteReadError as error:
                said.append(str(error))
            said.append((content.at_eof(), content.is_eof(), content.total_bytes, content.exception()))
        return said

    line = BaseProtocol(asyncio.get_running_loop(), None)
    line._upgraded = True  # so that nobody asks the parser to go on
    theirs = StreamReader(line, 2**16)
    theirs.feed_data(body)
    theirs.feed_eof()
    assert await read(Whole(body, line)) == await read(theirs)


# Over a connection.


class Seen(NamedTuple):
    """What a handler has seen of a request."""

    message: list[Any]
    body: object
    is_whole: bool


class Wire(asyncio.Transport):
    """Carries pieces exactly as they are, at exactly the moment: a socket would join some of them."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._is_closing = False
        self.sent = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    abort = close


async def _nothing(request: web.BaseRequest) -> object:
    return None


async def _chunk(request: web.BaseRequest) -> object:
    (
        data,
        _,
    ) = await request.content.readchunk()  # of empty bodies the other one says whether anybody had one before
    return data


async def _form(request: web.BaseRequest) -> object:
    return sorted((name, str(value)) for name, value in (await request.post()).items())


Pieces = Sequence[bytes | bytearray | tuple[bytes, ...]]

#: Ways to read a body, by the path that asks for them.
READERS: dict[str, Callable[[web.BaseRequest], Awaitable[object]]] = {
    "/read": lambda request: request.read(),
    "/late": lambda request: request.read(),  # and answered when something more has come
    "/nothing": _nothing,
    "/some": lambda request: request.content.read(2),
    "/any": lambda request: request.content.readany(),
    "/line": lambda request: request.content.readline(),
    "/chunk": _chunk,
    "/form": _form,
}


class Talk:
    """What comes of these pieces, one after the other; those in a tuple before anybody has a turn."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        #: What was sent after each of them, and whether the connection is still there.
        self.sent: list[tuple[bytes, bool]] = []
        self._late: list[asyncio.Future[None]] = []

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await READERS.get(request.path, READERS["/read"])(request)
        message = request._message
        self.seen.append(Seen(fields(message), body, type(request.content) is Whole))
        if request.path == "/late":
            self._late.append(asyncio.get_running_loop().create_future())
            await self._late[-1]
        return web.Response(text=f"{len(self.seen)}: {message.method} {message.path} {body!r}")

    async def hold(self, pieces: Pieces, head_timeout_s: float = 60.0, pause_s: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        connection = Connection(
            web.Server(self._answer), loop=loop, head_timeout_s=head_timeout_s, access_log=None
        )
        wire = Wire(connection)
        connection.connection_made(wire)
        await _settle()
        for moment in (*pieces, ()):
            late, self._late = self._late, []
            piece: Any
            for piece in moment if isinstance(moment, tuple) else (moment,):
                if not wire.is_closing():
                    connection.data_received(piece)
            await _settle()
            for each in late:
                each.set_result(None)
            await _settle()
            await asyncio.sleep(0 if moment else pause_s)
            self.sent.append((re.sub(rb"\r\nDate: [^\r]*", b"", wire.sent), wire.is_closing()))
        wire.close()
        await _settle()


async def _settle() -> None:
    """Let everything happen that can."""
    for _ in range(12):
        await asyncio.sleep(0)


def talk(pieces: Pieces, is_known: bool = True, **more: float) -> Talk:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversation, "IS_KNOWN", is_known)
        talk = Talk()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(talk.hold(pieces, **more))
        return talk


def wholes(pieces: Pieces, is_known: bool = True) -> list[bool]:
    """Which of the requests came without the parser."""
    return [each.is_whole for each in talk(pieces, is_known).seen]


def test_over_a_connection_the_parser_is_asked_once() -> None:
    assert wholes([USUAL, USUAL, LONGER, USUAL[:30], USUAL[30:], USUAL]) == [False, True, True, False, False]


def test_a_loop_that_brings_bytearrays_is_understood_as_well() -> None:
    assert wholes([bytearray(USUAL), bytearray(USUAL), USUAL]) == [False, True, True]


def test_with_an_aiohttp_that_we_do_not_know_it_is_always_asked() -> None:
    assert wholes([USUAL, USUAL, USUAL], is_known=False) == [False, False, False]


def test_a_body_that_came_later_than_its_head_is_no_reason_to_stop() -> None:
    assert wholes([USUAL[:-5], b"hel", b"lo", USUAL, USUAL[:-1], b"o", USUAL]) == [False, True, False, True]


def test_what_comes_while_another_is_answered_goes_to_the_parser() -> None:
    late = USUAL.replace(b"/a?b=1", b"/late")
    assert wholes([USUAL, late, USUAL, USUAL]) == [False, False, False, True]
    assert wholes([USUAL, (USUAL, LONGER), USUAL]) == [False, True, False, True]
    assert wholes([USUAL, (USUAL, LONGER[:40], LONGER[40:]), USUAL]) == [False, True, False, False]


def test_whoever_asks_again_is_not_cut_off_as_one_who_never_came_to_an_end() -> None:
    for last, is_cut_off in ((USUAL, False), (USUAL[:30], True)):
        assert talk([USUAL, USUAL, last], head_timeout_s=0.3, pause_s=0.4).sent[-1][1] is is_cut_off


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_nothing_is_remembered_once_somebody_wanted_another_protocol(protocol: str) -> None:
    upgrade = WITHOUT_BODY.replace(b"x\r\n", f"x\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n".encode())
    assert wholes([USUAL, USUAL, upgrade, USUAL, USUAL]) == [False, True, False, False, False]
    assert wholes([upgrade, USUAL, USUAL, USUAL]) == [False, False, False, False]


def test_a_request_that_is_hidden_in_a_body_stays_there() -> None:
    hidden = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
    around = USUAL.replace(b"5", b"%d" % len(hidden)).replace(b"hello", hidden)
    for pieces in (
        [USUAL, around],
        [hidden, USUAL, around],
        [around, hidden, around[:-3], around[-3:], around],
    ):
        seen = talk(pieces).seen
        assert [each.message[1] for each in seen].count("/hidden") == pieces.count(hidden)
        assert seen[-1].body == hidden


# Any requests, in any pieces.

BODIES = st.sampled_from(
    [
        b"",
        b"hello",
        b"a=1&b=2",
        b"line\nline\n",
        b"\r\n\r\n",
        b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\r\nContent-Length: 3\r\n\r\nabc",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"0\r\n\r\n",
        b"x" * 300,
        None,  # the request before
    ]
)
#: How a length is told: the number of bytes, one less or one more.
USUALLY = "Content-Length: {0}\r\n"
ODD_LENGTHS = st.sampled_from(
    [
        "content-length: {0}\r\n",
        "Content-Length:{0}\r\n",
        "Content-Length: 0{0}\r\n",
        "Content-Length: +{0}\r\n",
        "Content-Length: {0} \r\n",
        "Content-Length: {0}\r\n \r\n",
        "Content-Length: {0}\r\n 1\r\n",
        "Content-Length: {1}\r\n",
        "Content-Length: {2}\r\n",
        "Content-Length: {0}\r\nContent-Length: {0}\r\n",
        "Content-Length: {0}\r\ncontent-length: {2}\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: {0}\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: {0}\n",
    ]
)
HEADERS = st.sampled_from(
    [
        "",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "X-Note: Content-Length: 7\r\n",
        "X-Empty:\r\n",
        "X-Twice: 1\r\nx-twice: 2\r\n",
        "X-Wide: \xe9\r\n",
        "Connection: keep-alive\r\n",
        "Upgrade: websocket\r\n",
    ]
)
ODD_HEADERS = st.sampled_from(
    [
        "X-Folded: a\r\n Content-Length: 7\r\n",
        "Connection: close\r\n",
        "Expect: 100-continue\r\n",
        "Content-Encoding: gzip\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\n",
        "Connection: Upgrade\r\nUpgrade: other\r\n",
        "Host: y\r\n",
        "Bad Header\r\n",
        "X-Large: " + "x" * 2048 + "\r\n",
    ]
)
METHODS = st.sampled_from(["POST", "PUT", "GET", "HEAD", "OPTIONS"])
ODD_METHODS = st.sampled_from(["\r\nPOST", "\r\n\r\nPOST", "NONE", "post"])
TARGETS = st.sampled_from([*READERS, "/read?a=1", "http://y/read"])


def heads(
    methods: st.SearchStrategy[str] = METHODS,
    targets: st.SearchStrategy[str] = TARGETS,
    version: str = "HTTP/1.1",
    headers: st.SearchStrategy[str] = HEADERS,
    lengths: st.SearchStrategy[str] = st.sampled_from([USUALLY, USUALLY, ""]),  # noqa: B008  # it never changes
) -> st.SearchStrategy[str]:
    """Everything but the number and the body."""
    shape = f"{{}} {{}} {version}\r\nHost: x\r\n{{}}{{}}{{}}\r\n"
    return st.builds(shape.format, methods, targets, headers, lengths, HEADERS)


ODD_HEADS = st.one_of(
    heads(ODD_METHODS),
    heads(st.just("CONNECT"), st.just("x:1")),
    heads(version="HTTP/1.0"),
    heads(headers=ODD_HEADERS),
    heads(lengths=ODD_LENGTHS),
)
CUTS = st.sampled_from([*["whole"] * 8, "head first", "head first", "joined", "at once", "anywhere", "half"])


@st.composite
def pieces(draw: st.DrawFn) -> list[bytes | tuple[bytes, ...]]:
    """Requests with few heads, most of them in one piece and few of them odd, as they come over a connection."""
    asked = st.sampled_from(draw(st.lists(heads(), min_size=1, max_size=2)) * 3 + [draw(ODD_HEADS)])
    found: list[tuple[bytes, ...]] = [()]
    before = b""
    for head, body, cut in draw(st.lists(st.tuples(asked, BODIES, CUTS), min_size=2, max_size=9)):
        body = before if body is None else body
        body = body if "{" in head or "chunked" in head else b""
        before = head.format(len(body), max(len(body) - 1, 0), len(body) + 1).encode("latin-1") + body
        if cut == "joined":
            found.append((b"".join(found.pop()) + before,))
        elif cut == "at once":
            found.append((*found.pop(), before))
        else:
            at = {"whole": 0, "head first": len(before) - len(body)}.get(cut)
            at = draw(st.integers(0, len(before))) if at is None else at
            found += [(before[:at],), (b"" if cut == "half" else before[at:],)]
    return [tuple(filter(None, moment)) for moment in found if any(moment)]


@settings(max_examples=300)
@given(pieces())
def test_whatever_comes_in_whatever_pieces_is_understood_as_by_the_parser_alone(
    pieces: list[bytes | tuple[bytes, ...]],
) -> None:
    ours, theirs = talk(pieces), talk(pieces, is_known=False)
    assert [each._replace(is_whole=False) for each in ours.seen] == theirs.seen
    assert ours.sent == theirs.sent
