"""What is worth packing."""

import pytest
from aiohttp import web

from regista.api.middleware.compression import _packs_well, _vary


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
