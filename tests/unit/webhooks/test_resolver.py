"""Resolvers: a name server that is slow on purpose holds up neither other names nor the end of the process."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from regista.errors import WebhookRefused
from regista.webhooks.addresses import Allowed
from regista.webhooks.resolver import _THREADS, CheckedResolver, OwnThreads

_REAL = socket.getaddrinfo


class Names:
    """The system's names, of which some are not found out before they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.threads: list[str] = []
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: str, *arguments: Any, **named: Any) -> Any:
        if host.startswith("slow"):
            self.threads.append(threading.current_thread().name)
            self.free.wait(5)
            host = "localhost"
        return _REAL(host, *arguments, **named)


def test_names_are_looked_up_in_threads_that_nobody_else_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch)
    names.free.set()
    (found, *_) = asyncio.run(OwnThreads().resolve("slow.example.com", 99))
    assert (found["host"], found["port"]) == ("127.0.0.1", 99)
    assert names.threads == ["webhook-names"]


async def test_the_names_of_one_client_that_hang_leave_room_for_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names(monkeypatch)

    resolver = OwnThreads()
    hanging = [asyncio.create_task(resolver.resolve(f"slow{number}")) for number in range(3 * 16)]
    await asyncio.sleep(0)
    async with asyncio.timeout(3):
        assert await resolver.resolve("localhost")
    names.free.set()
    assert all(await asyncio.gather(*hanging))
    await resolver.close()


async def test_room_is_free_again_when_a_lookup_has_ended_and_not_when_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names(monkeypatch)

    resolver = OwnThreads()
    hanging = [asyncio.create_task(resolver.resolve("slow")) for _ in range(_THREADS)]
    await asyncio.sleep(0)
    for one in hanging:
        one.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(resolver.resolve("localhost"), 0.1)
    names.free.set()
    async with asyncio.timeout(3):
        assert await resolver.resolve("localhost")


async def test_what_is_no_name_is_said_to_whoever_asked() -> None:
    for name, error in (("no-such-host.invalid", OSError), ("a..b", UnicodeError)):
        with pytest.raises(error):
            await OwnThreads().resolve(name)


async def test_a_name_of_our_own_machine_is_refused() -> None:
    resolver = CheckedResolver(Allowed(), OwnThreads())
    with pytest.raises(WebhookRefused):
        await resolver.resolve("localhost", 80, socket.AF_UNSPEC)
    await resolver.close()


_LEAVING = """
import asyncio, socket, time
socket.getaddrinfo = lambda *a, **n: time.sleep(60)
from regista.webhooks.resolver import OwnThreads

async def leave():
    try:
        await asyncio.wait_for(OwnThreads().resolve("slow.example.com"), 0.1)
    except TimeoutError:
        print("left")

asyncio.run(leave())
"""


def test_a_lookup_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _LEAVING], capture_output=True, text=True, timeout=9, check=True
    )
    assert done.stdout == "left\n"
    assert time.monotonic() - began < 8
