"""Which packing an Accept-Encoding asks for."""

import gzip
import zlib
from collections.abc import Callable

import pytest
from aiohttp import web
from backports import zstd

from regista.api import compression
from regista.api.compression import (
    COMPRESSORS,
    REQUEST_ENCODINGS,
    BodyTooLarge,
    CorruptBody,
    _packs_well,
    _vary,
    choose_encoding,
    decompress,
)


def test_zstd_comes_before_gzip_where_both_are_there() -> None:
    assert list(COMPRESSORS) == ["zstd", "gzip"]
    assert REQUEST_ENCODINGS == ("identity", "gzip", "deflate", "zstd")


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("", None),
        ("gzip", "gzip"),
        ("x-gzip", "gzip"),
        ("GZIP", "gzip"),
        ("gzip, deflate", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0.5, gzip;q=0.9", "gzip"),
        ("zstd;q=0, gzip", "gzip"),
        ("gzip;q=0", None),
        ("*", "zstd"),
        ("*;q=0.1, zstd;q=0", "gzip"),
        ("*;q=0", None),
        ("identity", None),
        ("identity;q=1, gzip;q=0.5", None),
        ("identity;q=0.5, gzip;q=0.5", "gzip"),
        ("br", None),
        ("gzip;q=nonsense", None),
        ("gzip;q=7", None),
        ("gzip; q = 0.5", "gzip"),
        (",,;q=1,;", None),
        ("gzip;foo=bar", "gzip"),
    ],
)
def test_the_most_liked_is_chosen_and_ours_among_equals(accept: str, coding: str | None) -> None:
    assert choose_encoding(accept) == coding


def test_what_is_packed_can_be_unpacked() -> None:
    body = b'{"items": []}' * 100
    assert gzip.decompress(COMPRESSORS["gzip"](body)) == body
    assert zstd.decompress(COMPRESSORS["zstd"](body)) == body


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("coding", PACKED)
def test_a_body_is_unpacked_up_to_the_largest_and_no_further(coding: str) -> None:
    packed = PACKED[coding](b"x" * 1000)
    assert decompress(packed, coding, 1000) == b"x" * 1000
    with pytest.raises(BodyTooLarge):
        decompress(packed, coding, 999)
    assert decompress(b"", coding, 10) == b""
    assert decompress(b"{}", "identity", 10) == b"{}"


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("how", ["cut", "more", "other", "changed"])
def test_bytes_that_are_not_what_they_say_are_broken(coding: str, how: str) -> None:
    packed = PACKED[coding](b"x" * 1000)
    changed = {
        "cut": packed[:-4],
        "more": packed + b"more",
        "other": b"not packed at all",
        "changed": packed[:4] + bytes([packed[4] ^ 0xFF]) + packed[5:-1] + bytes([packed[-1] ^ 0xFF]),
    }
    with pytest.raises((CorruptBody, BodyTooLarge)):
        decompress(changed[how], coding, 10_000)


def test_raw_deflate_is_understood_too() -> None:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    assert decompress(packer.compress(b"abc" * 50) + packer.flush(), "deflate", 200) == b"abc" * 50


def test_a_zstd_frame_cannot_ask_for_a_huge_window() -> None:
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 27}
    packer = zstd.ZstdCompressor(options=options)
    packed = packer.compress(b"x" * 100) + packer.flush()
    with pytest.raises(CorruptBody):
        decompress(packed, "zstd", 1000)


def test_what_is_our_own_trouble_is_not_told_as_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def decompress(self, body: bytes, most: int) -> bytes:
            raise MemoryError

    monkeypatch.setattr(compression, "_reader", lambda body, coding: Full())
    with pytest.raises(MemoryError):
        decompress(b"x", "gzip", 10)


@pytest.mark.parametrize(
    ("kind", "packs"),
    [
        ("application/json", True),
        ("application/problem+json", True),
        ("text/html", True),
        ("text/plain", True),
        ("image/svg+xml", True),
        ("text/event-stream", False),
        ("image/png", False),
        ("application/octet-stream", False),
        ("application/zip", False),
    ],
)
def test_only_text_packs_well_and_streams_are_left_alone(kind: str, packs: bool) -> None:
    assert _packs_well(web.Response(body=b"x", content_type=kind)) is packs


def test_what_is_packed_already_or_a_part_is_left_alone() -> None:
    for header in ("Content-Encoding", "Content-Range"):
        assert not _packs_well(web.Response(body=b"x", content_type="text/plain", headers={header: "x"}))


def test_vary_keeps_what_was_there() -> None:
    response = web.Response(headers={"Vary": "Origin"})
    _vary(response)
    assert response.headers["Vary"] == "Origin, Accept-Encoding"
