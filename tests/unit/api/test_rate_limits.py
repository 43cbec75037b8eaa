"""Whom an address stands for."""

import pytest

from regista.api.rate_limits import address_group


@pytest.mark.parametrize(
    ("address", "stands_for"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:ffff:ffff:ffff", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_of_ipv6_everybody_within_a_64_counts_as_one(address: str, stands_for: str) -> None:
    assert address_group(address) == stands_for
