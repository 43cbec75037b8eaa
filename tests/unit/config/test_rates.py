"""How rates are written."""

import pytest

from regista.config import Config
from regista.config.rates import DEFAULTS, Context, parse_rate, rates_of
from regista.errors import ConfigError
from regista.model import Rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/s", Rate(100, 1.0)),
        ("6000/m", Rate(6000, 60.0)),
        ("50/10s", Rate(50, 10.0)),
        ("1/2h", Rate(1, 7200.0)),
        ("5/d", Rate(5, 86400.0)),
        ("off", None),
    ],
)
def test_a_rate_is_so_many_in_a_time_or_off(text: str, rate: Rate | None) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text",
    ["", "100", "/s", "0/s", "-1/s", "1.5/s", "100/x", "100/0s", "100 / s", "OFF", 5, None, "9" * 30 + "/s"],
)
def test_anything_else_is_refused_and_a_rate_shown(text: object) -> None:
    with pytest.raises(ValueError, match="expected a rate like 100/s"):
        parse_rate(text)


def test_every_context_has_a_default_and_a_setting_changes_single_ones() -> None:
    assert set(DEFAULTS) == set(Context)
    rates = rates_of({"submit": "1/s", "auth": "off"})
    assert rates["submit"] == Rate(1, 1.0)
    assert rates["auth"] is None
    assert rates["read"] == parse_rate(DEFAULTS["read"])


def test_the_setting_is_json_and_checked_at_the_start() -> None:
    config = Config.from_env({"REGISTA_RATE_LIMITS": '{"submit": "5/s"}'})
    assert config.rate_limits == {"submit": "5/s"}
    for wrong in ("[]", "5/s"):
        with pytest.raises(ConfigError, match="REGISTA_RATE_LIMITS: expected JSON of contexts"):
            Config.from_env({"REGISTA_RATE_LIMITS": wrong})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ('{"read": "1/s", "sumbit": "5/s"}', r"REGISTA_RATE_LIMITS: .*did you mean submit\?\), got 'sumbit'"),
        ('{"read": "1/s", "submit": "fast"}', "REGISTA_RATE_LIMITS, submit: expected a rate like .*'fast'"),
        ('{"submit": 5, "read": "1/s"}', "REGISTA_RATE_LIMITS, submit: expected a rate like .*got 5"),
    ],
)
def test_a_member_that_is_wrong_is_refused_by_its_own_name(wrong: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Config.from_env({"REGISTA_RATE_LIMITS": wrong})
