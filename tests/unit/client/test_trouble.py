"""Trouble: which failures nobody can have heard of, and which will not go away."""

import ssl

import pytest

from regista.client.trouble import Trouble, refuse, trouble_of
from regista.errors import JobNotFound, StorageUnavailable, Unreachable
from regista.wire.http_connection import Cut
from regista.wire.http_line import Unheard


def test_before_a_connection_was_made_nobody_can_have_heard_us() -> None:
    refused = trouble_of(Unheard(ConnectionRefusedError(111, "refused")), "")
    assert (refused.untouched, refused.final, str(refused)) == (True, False, "connection refused")
    cut = trouble_of(Cut(), "")
    assert (cut.untouched, cut.final) == (False, False)
    assert isinstance(cut.as_error("http://here"), Unreachable)


def test_a_certificate_that_is_not_trusted_is_not_trusted_a_second_later() -> None:
    verdict = ssl.SSLCertVerificationError("no")
    verdict.verify_code, verdict.verify_message = 20, "unable to get local issuer certificate"
    trouble = trouble_of(Unheard(verdict), "")
    assert "TLS_CA_PATH" in str(trouble)
    assert (trouble.untouched, trouble.final) == (True, True)
    assert not trouble_of(Unheard(ssl.SSLError("no")), "").final


def test_who_hangs_up_without_a_word_is_told_of_with_advice() -> None:
    assert "write https://" in str(trouble_of(Cut(), "http://here"))
    assert "client certificate" in str(trouble_of(Cut(), "https://here"))


def test_a_refusal_is_an_error_unless_it_may_be_over_soon() -> None:
    with pytest.raises(JobNotFound):
        refuse(404, None, b'{"code": "job_not_found", "detail": "no", "job_id": "j"}')
    with pytest.raises(Trouble) as soon:
        refuse(503, "1.5", b'{"code": "storage_unavailable", "detail": "no"}')
    assert (soon.value.untouched, soon.value.retry_after_s) == (False, 1.5)
    assert isinstance(soon.value.as_error("http://here"), StorageUnavailable)
    with pytest.raises(Trouble) as often:
        refuse(429, "Fri, 31 Dec 1999 23:59:59 GMT", b"{}")
    assert (often.value.untouched, often.value.retry_after_s) == (True, 0.0)
