"""Signatures: only who knows the secret can sign, and nothing that was signed can be changed or sent later."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.webhooks import BadSignature, sign, verify
from regista.webhooks.signature import derive_secret, key_of, secret_of

SECRET = secret_of(b"k" * 32)
OTHER = secret_of(b"o" * 32)
BODY = b'{"type":"job.finished"}'


def test_the_example_of_the_standard_is_signed_as_the_standard_says() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    headers = sign([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert verify(secret, headers, body, now=1614265330) == "msg_p5jXN8AQM9LWM0D4loKWxJek"


def test_every_secret_signs_so_that_one_can_take_the_place_of_another() -> None:
    headers = sign([SECRET, OTHER], "id", 100, BODY)
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert verify(SECRET, headers, BODY, now=100) == verify(OTHER, headers, BODY, now=100) == "id"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"webhook-id": "other"}, "not one of this secret"),
        ({"webhook-timestamp": "101"}, "not one of this secret"),
        ({"webhook-signature": "v1,"}, "not one of this secret"),
        ({"webhook-signature": "v1,\udc80é"}, "not one of this secret"),
        ({"webhook-timestamp": "soon"}, "expected the headers"),
        ({"webhook-id": None}, "expected the headers"),
    ],
)
def test_what_was_changed_on_the_way_is_refused(change: dict[str, str | None], why: str) -> None:
    headers = {k: v for k, v in (sign([SECRET], "id", 100, BODY) | change).items() if v is not None}
    with pytest.raises(BadSignature, match=why):
        verify(SECRET, headers, BODY, now=100)


def test_another_body_or_secret_is_refused() -> None:
    headers = sign([SECRET], "id", 100, BODY)
    with pytest.raises(BadSignature):
        verify(SECRET, headers, BODY + b" ", now=100)
    with pytest.raises(BadSignature):
        verify(OTHER, headers, BODY, now=100)


def test_what_is_too_old_or_from_the_future_is_refused_as_a_replay() -> None:
    headers = sign([SECRET], "id", 1000, BODY)
    for now in (1000 + 301, 1000 - 301):
        with pytest.raises(BadSignature, match="replay"):
            verify(SECRET, headers, BODY, now=now)
    assert verify(SECRET, headers, BODY, now=1300) == "id"


def test_names_of_headers_come_in_any_case() -> None:
    headers = {name.title(): value for name, value in sign([SECRET], "id", 100, BODY).items()}
    assert verify(SECRET, headers, BODY, now=100) == "id"


def test_a_derived_secret_is_the_clients_own_and_stays() -> None:
    assert derive_secret(b"root", "acme") == derive_secret(b"root", "acme")
    assert len({derive_secret(root, name) for root in (b"r", b"s") for name in ("acme", "bcme", "")}) == 6
    assert len(key_of(derive_secret(b"root", "acme"))) == 32


def test_what_is_no_secret_is_refused_with_words() -> None:
    with pytest.raises(ValueError, match="whsec_"):
        key_of("whsec_***")


@given(st.binary(min_size=24, max_size=64), st.binary(), st.integers(0, 2**40))
def test_whatever_is_signed_is_verified(key: bytes, body: bytes, seconds: int) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    assert verify(secret, sign([secret], "id", seconds, body), body, now=seconds) == "id"
