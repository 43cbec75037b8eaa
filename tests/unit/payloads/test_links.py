"""Signed links: everything in them is part of the signature."""

from urllib.parse import parse_qs, unquote, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from regista.payloads.links import PATH, is_valid_link, signed_path

SECRET = b"0" * 32


@given(name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1), expires=st.integers(0, 10**11))
def test_a_link_says_what_it_is_signed_for(name: str, expires: int) -> None:
    link = urlsplit("http://here" + signed_path(SECRET, "j1", name, "PUT", expires))
    query = {key: value for key, (value,) in parse_qs(link.query).items()}

    assert unquote(link.path) == f"{PATH}/j1/{name}"
    assert (query["method"], query["expires"]) == ("PUT", str(expires))
    assert is_valid_link(SECRET, "j1", name, "PUT", expires, query["signature"])


def test_whatever_is_changed_makes_it_invalid() -> None:
    signature = parse_qs(urlsplit(signed_path(SECRET, "j1", "a", "GET", 100)).query)["signature"][0]

    assert is_valid_link(SECRET, "j1", "a", "GET", 100, signature)
    assert not is_valid_link(b"1" * 32, "j1", "a", "GET", 100, signature)
    assert not is_valid_link(SECRET, "j2", "a", "GET", 100, signature)
    assert not is_valid_link(SECRET, "j1", "b", "GET", 100, signature)
    assert not is_valid_link(SECRET, "j1", "a", "PUT", 100, signature)
    assert not is_valid_link(SECRET, "j1", "a", "GET", 101, signature)
    for other in ("", signature[:-1], signature + "0", "ü\udcff"):
        assert not is_valid_link(SECRET, "j1", "a", "GET", 100, other)
