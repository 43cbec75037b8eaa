"""What a worker says one can do about a refusal."""

import pytest

from regista.sdk.registration import hint_for


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("token_unknown", "set WORKER_TOKEN"),
        ("", "set WORKER_TOKEN"),
        ("password_used", "regista tokens otp"),
        ("certificate_missing", "TLS_CERT_PATH"),
        ("certificate_without_name", "common name"),
        ("worker_mismatch", "WORKER_ID"),
        ("timestamp_out_of_range", "clock"),
    ],
)
def test_the_advice_fits_the_cause(code: str, words: str) -> None:
    assert words in hint_for(code)
    assert ("WORKER_TOKEN" in hint_for(code)) == (code in ("token_unknown", ""))
