import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from regista.errors import StorageError, StorageUnavailable
from regista.storage.redis.checks import why_not
from regista.storage.redis.store import RedisStorage
from regista.testing.conformance.storage.kit import (
    APPLIED,
    claim,
    commit,
    dispatch,
    make_job,
    make_task,
    make_worker,
    offers,
    picture,
    running,
    write,
)
from tests.conftest import Require
from tests.ports import free_port
from tests.redis_server import RedisServer

from .conftest import Open


async def begin(store: RedisStorage) -> None:
    async with running(store):
        pass


def test_a_server_that_throws_things_away_is_refused(require: Require) -> None:
    words = "expected maxmemory-policy noeviction, got allkeys-lru"
    with (
        RedisServer(require("redis-server"), "--maxmemory-policy", "allkeys-lru") as server,
        pytest.raises(StorageError, match=words),
    ):
        asyncio.run(begin(RedisStorage(server.url)))


def test_a_wrong_password_is_refused_and_not_shown(require: Require) -> None:
    with RedisServer(require("redis-server"), "--requirepass", "sesame") as server:
        for who in ("", ":wrong-word@", "nobody:sesame@"):
            with pytest.raises(StorageError, match="refused our credentials") as caught:
                asyncio.run(begin(RedisStorage(f"redis://{who}127.0.0.1:{server.port}/0")))
            assert "wrong-word" not in str(caught.value)
        asyncio.run(begin(RedisStorage(f"redis://:sesame@127.0.0.1:{server.port}/2")))


async def test_a_user_with_the_rights_that_the_docs_name_can_do_everything(
    server: RedisServer, namespace: str
) -> None:
    keys = f"regista:{{{namespace}}}:*"
    rights = ("~" + keys, "&" + keys, "+@all", "-@admin", "-@dangerous", "+info")
    assert (
        server.ask("ACL", "SETUSER", "stage", "on", ">sesame", "resetkeys", "resetchannels", *rights) == "+OK"
    )
    store = RedisStorage(f"redis://stage:sesame@127.0.0.1:{server.port}/0", namespace=namespace)

    async with running(store):
        assert await commit(store, write(make_job())) == [APPLIED]
        await dispatch(store, make_task("job-2"))
        worker = await store.register(make_worker(), 30)
        assert await offers(store, worker) == ["job-2_1_0"]
        assert await claim(store) == ["job-1"]
        assert await store.extend_leases("me", ["job-1"], 30) == ["job-1"]
        assert await store.lead("chore", "me", 30)
        assert await picture(store, ["job-1", "job-2"])
        assert await store.workers(lapsed_only=True) == []
        await store.prune(1)


@pytest.mark.parametrize(
    ("rights", "words"),
    [
        (("~other*", "&*", "+@all"), "lacks a right"),
        (("~*", "&other", "+@all"), "lacks a right"),
        (("~*", "&*", "+@all", "-info"), "may not call INFO"),
    ],
)
def test_a_user_without_the_rights_is_refused(
    server: RedisServer, open_store: Open, rights: tuple[str, ...], words: str
) -> None:
    server.ask("ACL", "DELUSER", "poor")
    server.ask("ACL", "SETUSER", "poor", "on", ">sesame", "resetkeys", "resetchannels", *rights)

    with pytest.raises(StorageError, match=words):
        asyncio.run(begin(open_store(f"redis://poor:sesame@127.0.0.1:{server.port}/0")))


def test_a_server_that_forgets_at_a_restart_is_warned_of(
    server: RedisServer, mortal: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "regista.storage"):
        asyncio.run(begin(RedisStorage(mortal.url)))
        assert caplog.text == ""
        asyncio.run(begin(RedisStorage(server.url)))
    assert "append-only file is off" in caplog.text


def test_a_server_that_is_not_there_is_told_from_one_that_refuses() -> None:
    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        asyncio.run(begin(RedisStorage(f"redis://127.0.0.1:{free_port()}", patience_s=0.2)))


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis://localhost?db=x"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(StorageError, match="expected a URL like redis"):
        asyncio.run(begin(RedisStorage(url)))


@pytest.mark.parametrize("namespace", ["", "a b", "{x}", "a:b"])
def test_a_namespace_that_would_break_the_tag_is_refused(namespace: str) -> None:
    with pytest.raises(StorageError, match="namespace: expected letters"):
        RedisStorage("redis://localhost", namespace=namespace)


def test_a_cluster_is_fine_once_it_holds_our_keys(require: Require) -> None:
    with RedisServer(require("redis-server"), "--cluster-enabled", "yes") as server:
        with pytest.raises(StorageUnavailable, match="Hash slot not served"):
            asyncio.run(begin(RedisStorage(server.url, patience_s=0.3)))
        assert server.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383) == "+OK"

        async def play() -> None:
            for _ in range(100):
                if "cluster_state:ok" in server.ask("CLUSTER", "INFO"):
                    break
                await asyncio.sleep(0.05)
            async with running(RedisStorage(server.url)) as store:
                assert await commit(store, write(make_job())) == [APPLIED]

        asyncio.run(play())


def test_the_wrong_node_of_a_cluster_names_the_right_one() -> None:
    why = why_not("MovedError: 3999 10.0.0.7:6381", "regista:{r0}:")

    assert "they all live on one, so name that in the URL: 10.0.0.7:6381" in why


@asynccontextmanager
async def impostor(info: bytes) -> AsyncIterator[str]:
    """The address of something that says OK to everything, and this to INFO."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(asyncio.current_task())
        with suppress(OSError):  # they hang up
            while asked := await reader.read(65536):
                ours = b"INFO" in asked and b"SETINFO" not in asked
                writer.write(info if ours else b"+OK\r\n" * (asked.count(b"\r\n*") + 1))
        writer.transport.abort()

    calls: list[asyncio.Task[None] | None] = []
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        await asyncio.gather(*filter(None, calls))


def said(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


@pytest.mark.parametrize(
    ("info", "refusal"),
    [
        (said(b"redis_version:6.2.1\r\n"), "expected Redis 7 or newer, or Valkey; got 6.2.1"),
        (said(b"redis_version:unheard-of\r\n"), "expected Redis 7 or newer, or Valkey; got unheard-of"),
        (b"$-1\r\n", "INFO was answered with None"),
        (b"*1\r\n:5\r\n", r"INFO was answered with \[5\]"),
        (said(b"redis_version:7.0.0\r\n") * 2, "the server said what nobody had asked for"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "Protocol error"),
    ],
)
async def test_what_is_no_redis_that_we_know_is_refused_in_plain_words(info: bytes, refusal: str) -> None:
    async with impostor(info) as url:
        with pytest.raises(StorageError, match=refusal):
            await RedisStorage(url, patience_s=0.2).start()
