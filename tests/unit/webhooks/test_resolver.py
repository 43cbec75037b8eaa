"""CheckedResolver: a slow name server delays only look-ups, and no private address gets through."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from regista.errors import WebhookRefused
from regista.webhooks.addresses import AddressPolicy
from regista.webhooks.resolver import _THREADS, CheckedResolver

_REAL = socket.getaddrinfo
HERE = AddressPolicy(["127.0.0.0/8", "::1/128"])


class Names:
    """The system's names, of which some are not found out before they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.threads: set[str] = set()
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: str, *arguments: Any, **named: Any) -> Any:
        if host.startswith("slow"):
            self.threads.add(threading.current_thread().name.partition("_")[0])
            self.free.wait(5)
            host = "localhost"
        return _REAL(host, *arguments, **named)


async def test_names_are_looked_up_in_threads_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch)
    names.free.set()
    resolver = CheckedResolver(HERE)
    found = await resolver.resolve("slow.example.com", 99)
    await resolver.close()
    assert ("127.0.0.1", 99) in [(each["host"], each["port"]) for each in found]
    assert names.threads == {"webhook-dns"}


async def test_the_names_of_one_client_that_hang_leave_room_for_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names(monkeypatch)
    resolver = CheckedResolver(HERE)
    hanging = [asyncio.create_task(resolver.resolve(f"slow{number}")) for number in range(3 * 16)]
    await asyncio.sleep(0)
    async with asyncio.timeout(3):
        assert await resolver.resolve("localhost")
    names.free.set()
    assert all(await asyncio.gather(*hanging))
    await resolver.close()


async def test_threads_are_free_again_when_their_look_up_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch)
    resolver = CheckedResolver(HERE)
    hanging = [asyncio.create_task(resolver.resolve("slow")) for _ in range(_THREADS)]
    await asyncio.sleep(0.05)
    for one in hanging:
        one.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(resolver.resolve("localhost"), 0.1)
    names.free.set()
    async with asyncio.timeout(3):
        assert await resolver.resolve("localhost")
    await resolver.close()


@pytest.mark.parametrize(("name", "error"), [("no-such-host.invalid", OSError), ("a..b", UnicodeError)])
async def test_a_name_without_an_address_is_an_error(name: str, error: type[Exception]) -> None:
    resolver = CheckedResolver(HERE)
    with pytest.raises(error):
        await resolver.resolve(name)
    await resolver.close()


async def test_a_name_of_our_own_machine_is_refused() -> None:
    resolver = CheckedResolver(AddressPolicy())
    with pytest.raises(WebhookRefused):
        await resolver.resolve("localhost", 80, socket.AF_UNSPEC)
    await resolver.close()
