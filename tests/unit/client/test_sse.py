from hypothesis import given
from hypothesis import strategies as st

from regista.client.sse import MAX_RETRY_S, EventStreamParser, Message

STREAM = (
    b": a comment\n\n"
    b'id: 1\nevent: state_started\ndata: {"a": 1}\n\n'
    b"id: 2\r\ndata: two\r\ndata: lines\r\n\r\n"
    b"retry: 5\ndata:no blank, no id\n\n"
    b"id: 3\n\n"
    b"data: half a mess"
)
MESSAGES = [
    Message("1", "state_started", '{"a": 1}'),
    Message("2", "message", "two\nlines"),
    Message("2", "message", "no blank, no id"),
]


def test_messages_have_id_kind_and_data_and_half_a_message_is_none() -> None:
    parser = EventStreamParser()

    assert list(parser.feed(STREAM)) == MESSAGES
    assert parser.last_id == "3"


def test_retry_is_read_in_milliseconds_and_bounded() -> None:
    parser = EventStreamParser()
    for line, seconds in ((b"250", 0.25), (b"soon", 0.25), (b"99999999999999", MAX_RETRY_S)):
        assert list(parser.feed(b"retry: " + line + b"\n\n")) == []
        assert parser.retry_s == seconds


def test_restart_drops_half_a_message_and_keeps_the_position() -> None:
    parser = EventStreamParser()
    list(parser.feed(b"retry: 500\nid: 7\ndata: a\n\nevent: x\ndata: half"))
    parser.restart()
    assert (parser.last_id, parser.retry_s) == ("7", 0.5)
    assert list(parser.feed(b"data: b\n\n")) == [Message("7", "message", "b")]


@given(st.lists(st.integers(1, 20)))
def test_it_does_not_matter_where_the_bytes_are_cut(sizes: list[int]) -> None:
    parser, rest = EventStreamParser(), STREAM
    found: list[Message] = []
    for size in sizes:
        found += parser.feed(rest[:size])
        rest = rest[size:]
    found += parser.feed(rest)

    assert found == MESSAGES


@given(st.binary())
def test_whatever_comes_is_survived(noise: bytes) -> None:
    list(EventStreamParser().feed(noise + b"\n\n"))
