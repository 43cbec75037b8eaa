"""Whatever is asked may be carried out while its answer is lost; then it is asked again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from regista.storage.redis.store import RedisStorage
from regista.testing.conformance.storage.kit import (
    APPLIED,
    V1,
    claim,
    commit,
    create,
    dispatch,
    event,
    make_job,
    make_task,
    make_worker,
    next_of,
    offers,
    running,
    told,
    write,
)
from tests.proxy import Proxy
from tests.redis_server import RedisServer

from .conftest import Open

T = TypeVar("T")


class Losing(Proxy):
    """Breaks a connection in the middle of an answer, once for each number of bytes that it is told."""

    #: Bytes of the next answer that still arrive; None lets everything through.
    bytes_left: int | None = None
    #: What the question must contain for its answer to be cut.
    after = b""
    _asked = False

    @property
    def is_set(self) -> bool:
        return self.bytes_left is not None

    async def _up(
        self, reader: asyncio.StreamReader, there: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            self._asked = self._asked or (self.is_set and self.after in data)
            there.write(data)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self._asked:
                writer.write(data[: self.bytes_left])
                self._asked, self.bytes_left = False, None
                await asyncio.sleep(0.001)
                return
            writer.write(data)


@asynccontextmanager
async def behind(server: RedisServer, open_store: Open) -> AsyncIterator[tuple[Losing, RedisStorage]]:
    async with (
        Losing(server.port) as network,
        running(open_store(f"redis://127.0.0.1:{network.port}/0")) as store,
    ):
        yield network, store


async def losing(
    network: Losing, store: RedisStorage, script: str, ask: Callable[[], Awaitable[T]], bytes_left: int = 0
) -> T:
    """What comes of it when the first answer of this script is cut."""
    network.after, network.bytes_left = store._scripts._hashes[script].encode(), bytes_left
    answer = await ask()
    assert not network.is_set, "nothing was cut"
    return answer


async def test_a_commit_is_applied_once_wherever_its_answer_is_cut(
    open_store: Open, server: RedisServer
) -> None:
    async with behind(server, open_store) as (network, store):
        for bytes_left in range(40):  # the answer has fewer
            job = make_job(f"job-{bytes_left}")
            changes = [write(job, events=(event("once"),)), write(next_of(job), events=(event("twice"),))]
            ask = partial(commit, store, *changes)
            assert await losing(network, store, "commit", ask, bytes_left) == [APPLIED, APPLIED]
            assert await told(store, job.id) == [(1, "once"), (2, "twice")]


async def test_jobs_that_were_claimed_unheard_are_claimed_by_asking_again(
    open_store: Open, server: RedisServer
) -> None:
    async with behind(server, open_store) as (network, store):
        await create(store, *(make_job(f"job-{n}") for n in range(3)))
        jobs = await losing(network, store, "claim_ready", lambda: store.claim_ready("me", [V1], 2, 30.0))
        assert [job.id for job in jobs] == ["job-0", "job-1"]
        assert await claim(store) == ["job-2"]
        assert await claim(store) == []


async def test_tasks_that_were_offered_unheard_are_offered_by_asking_again(
    open_store: Open, server: RedisServer
) -> None:
    async with behind(server, open_store) as (network, store):
        await dispatch(store, make_task("job-1"))
        await dispatch(store, make_task("job-2"))
        worker = await store.register(make_worker(), 30)
        offered = await losing(network, store, "claim_tasks", lambda: offers(store, worker))
        assert offered == ["job-1_1_0", "job-2_1_0"]
        assert await offers(store, worker) == []
        # What was offered in earlier calls is not offered again, even at the same instant.
        await dispatch(store, make_task("job-3"))
        offered = await losing(network, store, "claim_tasks", lambda: offers(store, worker))
        assert offered == ["job-3_1_0"]


async def test_what_was_taken_unheard_is_taken_once(open_store: Open, server: RedisServer) -> None:
    async with behind(server, open_store) as (network, store):
        taken = await losing(network, store, "take_tokens", lambda: store.take_tokens("bucket", 3, 5, 3600.0))
        assert (taken.ok, taken.left) == (True, 2)
        assert (await store.take_tokens("bucket", 2, 5, 3600.0)).ok
        assert not (await store.take_tokens("bucket", 1, 5, 3600.0)).ok
