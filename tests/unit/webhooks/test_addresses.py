"""Addresses: nobody reaches our own network through us, however the address is written."""

import pytest

from regista.errors import WebhookRefused
from regista.webhooks.addresses import AddressPolicy

PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",  # where clouds keep credentials
    "192.0.0.192",  # the same, of another cloud
    "168.63.129.16",  # what every machine of a third has beside it
    "192.88.99.1",
    "100.64.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",  # site-local
    "feff::1",
    "fc00::1",
    "fd00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::10.0.0.1",
    "::ffff:168.63.129.16",
    "3fff::1",
    "5f00::1",
    "2002:7f00:1::",  # 6to4 around 127.0.0.1
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",  # Teredo
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(WebhookRefused, match="not a public address"):
        AddressPolicy().check(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_told(address: str) -> None:
    AddressPolicy().check(address)


def test_a_network_that_was_allowed_is_told_and_no_other() -> None:
    allowed = AddressPolicy(["10.0.0.0/8", "::1/128"])
    for address in ("10.9.9.9", "::ffff:10.9.9.9", "::1", "8.8.8.8"):
        allowed.check(address)
    for address in ("192.168.1.1", "127.0.0.1", "::2"):
        with pytest.raises(WebhookRefused):
            allowed.check(address)


def test_an_address_in_a_url_is_looked_at_and_a_name_is_not_yet() -> None:
    for host in ("localhost", "LOCALHOST.", "127.0.0.1", "::1"):
        with pytest.raises(WebhookRefused):
            AddressPolicy().check_host(host)
    AddressPolicy().check_host("hooks.example.com")
    AddressPolicy(["127.0.0.0/8"]).check_host("localhost")
