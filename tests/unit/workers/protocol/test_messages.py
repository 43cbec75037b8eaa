"""Names, and which SDK does what."""

import pytest

from regista.workers.protocol.messages import (
    BadMessage,
    Heartbeat,
    check_identifier,
    check_skill,
    decode_message,
    registers_again,
)


@pytest.mark.parametrize("name", ["a", "worker-7_B", "x" * 128])
def test_an_identifier_is_plain(name: str) -> None:
    assert check_identifier("worker id", name) == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "x" * 129, "a\n"])
def test_anything_else_is_none(name: str) -> None:
    with pytest.raises(BadMessage, match="worker id"):
        check_identifier("worker id", name)


def test_a_skill_may_have_dots_and_colons() -> None:
    assert check_skill("video.transcode:h264") == "video.transcode:h264"


@pytest.mark.parametrize(
    ("version", "again"),
    [("1.0b17", True), ("1.0b4", True), ("1.0b3", False), (None, False), ("2", False)],
)
def test_the_newer_sdk_registers_again_when_told(version: str | None, again: bool) -> None:
    assert registers_again(version) is again


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"status": 1}', b"\xff", b"[" * 100_000])
def test_what_cannot_be_read_is_a_bad_message(body: bytes) -> None:
    with pytest.raises(BadMessage):
        decode_message(body, Heartbeat)
