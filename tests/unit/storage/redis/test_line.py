import asyncio
import random
import signal

import pytest

from regista.errors import StorageUnavailable
from regista.storage.redis import line
from regista.storage.redis.line import connection_of
from regista.storage.redis.link import Link
from tests.proxy import Proxy
from tests.redis_server import RedisServer

from .test_link import linked


async def test_a_url_that_asks_for_another_protocol_gets_the_one_that_we_speak(server: RedisServer) -> None:
    async with linked(f"{server.url}?protocol=3") as link:
        await link.ask(("HSET", "of-two", "a", 1, "b", 2))
        assert await link.ask(("HGETALL", "of-two")) == [[b"a", b"1", b"b", b"2"]]


async def test_a_line_that_was_cut_lets_go_of_its_connection_at_once(server: RedisServer) -> None:
    async with linked(server.url) as link:
        assert link._line is not None
        link._line.cut(TimeoutError("too long"))
        for _ in range(200):
            if "name=test " not in server.ask("CLIENT", "LIST"):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the server still has the connection")


async def test_answers_that_come_too_late_are_nobody_elses(server: RedisServer) -> None:
    async with (
        Proxy(server.port) as network,
        linked(f"redis://127.0.0.1:{network.port}", patience_s=0.2) as link,
    ):
        for number in range(6):
            network.stall()
            late = asyncio.ensure_future(link.ask(("ECHO", f"late {number}")))
            await asyncio.wait([late], timeout=0.25 if number % 2 else 0.15)
            network.go_on()
            (answer,) = await asyncio.gather(late, return_exceptions=True)
            assert isinstance(answer, Exception) or answer == [b"late %d" % number]
            assert await link.ask(("ECHO", number)) == [b"%d" % number]


def test_a_server_that_takes_no_more_is_silent_however_much_was_to_be_sent(
    mortal: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "_ON_ITS_WAY", 1 << 18)

    async def play() -> float:
        async with linked(mortal.url, patience_s=0.3) as link:
            mortal.kill(signal.SIGSTOP)
            began = asyncio.get_running_loop().time()
            with pytest.raises(StorageUnavailable):
                await link.ask(("SET", "large", b"x" * 12_000_000))
            took_s = asyncio.get_running_loop().time() - began
            mortal.kill(signal.SIGCONT)
            return took_s

    assert asyncio.run(play()) < 2.0


async def test_callers_who_leave_at_any_moment_cost_nobody_else_an_answer(server: RedisServer) -> None:
    dice = random.Random(7)

    async def echo(link: Link, number: int) -> bool:
        return await link.ask(("ECHO", number), ("ECHO", -number)) == [b"%d" % number, b"%d" % -number]

    async with linked(server.url) as link:
        callers = []
        for number in range(1, 1000):
            callers.append(asyncio.ensure_future(echo(link, number)))
            if dice.random() < 0.3:
                dice.choice(callers).cancel()
            if number % 7 == 0:
                await asyncio.sleep(0)
        answers = await asyncio.gather(*callers, return_exceptions=True)
        stayed = [answer for answer in answers if not isinstance(answer, asyncio.CancelledError)]
        assert len(stayed) > 500
        assert all(answer is True for answer in stayed)


def test_the_protocol_of_a_connection_is_ours_whatever_the_url_says() -> None:
    connection = connection_of("redis://localhost:6379/0?protocol=3", "test", 1.0)
    assert connection.protocol == 2
