import asyncio
import logging

import pytest

from regista.model import ChildJob
from regista.storage.base import Hint, HintKind
from regista.storage.redis import pubsub
from regista.storage.redis.pubsub import LOOK_AGAIN
from regista.storage.redis.store import RedisStorage
from regista.testing.conformance.storage.kit import (
    FINISHED,
    PARKED,
    commit,
    create,
    dispatch,
    event,
    hears,
    make_job,
    make_task,
    make_worker,
    message,
    next_of,
    running,
    write,
)
from tests.proxy import Proxy
from tests.redis_server import RedisServer

from .conftest import Open


async def test_a_hint_of_one_instance_reaches_the_other(open_store: Open) -> None:
    async with running(open_store()) as here, running(open_store()) as there:
        heard: list[Hint] = []
        there.subscribe(heard.append)
        job = make_job()
        await create(here, job, events=(event(),), messages=(message("m", "job-7"),))
        await dispatch(here, make_task("job-2"))
        await commit(here, write(next_of(job, **FINISHED)))
        kinds = (HintKind.READY, HintKind.OUTBOX)
        assert await hears(heard, *map(Hint, kinds), Hint(HintKind.MESSAGE, "job-7"))
        assert await hears(heard, Hint(HintKind.TASK, '["encode","encode",""]'))
        assert await hears(heard, Hint(HintKind.CHANGED, "job-1"))


async def test_the_record_of_a_worker_is_hinted_at_everywhere(open_store: Open) -> None:
    async with running(open_store()) as here, running(open_store()) as there:
        heard: list[Hint] = []
        there.subscribe(heard.append)
        assert await here.update_worker(await there.register(make_worker(), 30))
        assert await hears(heard, Hint(HintKind.WORKER, "w1"))


async def test_ones_own_hints_are_heard_once(open_store: Open) -> None:
    async with running(open_store()) as here, running(open_store()) as there:
        mine: list[Hint] = []
        yours: list[Hint] = []
        here.subscribe(mine.append)
        there.subscribe(yours.append)
        await create(here, make_job(**PARKED), children=(ChildJob(make_job("child"), ()),))
        assert await hears(yours, Hint(HintKind.READY))
        await asyncio.sleep(0.05)
        assert mine == [Hint(HintKind.READY)]


def test_who_was_cut_off_hears_that_anything_may_be_new(
    open_store: Open, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with (
            Proxy(server.port) as network,
            running(open_store()) as there,
            running(open_store(f"redis://127.0.0.1:{network.port}/0")) as here,
        ):
            heard: list[Hint] = []
            here.subscribe(heard.append)
            network.close_the_line()
            await create(there, make_job())
            await asyncio.sleep(0.1)
            assert heard == []
            network.open_the_line()
            assert await hears(heard, *LOOK_AGAIN)
            heard.clear()
            await create(there, make_job("job-2"))
            assert await hears(heard, Hint(HintKind.READY))

    with caplog.at_level(logging.WARNING, "regista.storage"):
        asyncio.run(play())
    assert "hints from other instances stopped" in caplog.text


async def test_words_that_nobody_understands_are_passed_over(
    open_store: Open, server: RedisServer, namespace: str
) -> None:
    async with running(open_store()) as here, running(open_store()) as there:
        heard: list[Hint] = []
        there.subscribe(heard.append)
        server.ask("PUBLISH", f"regista:{{{namespace}}}:hints", "nonsense")
        await create(here, make_job())
        assert await hears(heard, Hint(HintKind.READY))


async def test_who_listens_alone_hears_one_whose_own_ear_is_cut_off(open_store: Open) -> None:
    async with running(open_store()) as here, running(open_store()) as there:
        heard: list[Hint] = []
        there.subscribe(heard.append)
        await here._crier.stop()
        await create(here, make_job())
        assert await hears(heard, Hint(HintKind.READY))


async def test_a_subscription_that_is_never_answered_is_asked_for_again(
    open_store: Open, server: RedisServer
) -> None:
    async with (
        Proxy(server.port) as network,
        running(open_store(f"redis://127.0.0.1:{network.port}/0", patience_s=0.3)) as here,
    ):
        heard: list[Hint] = []
        here.subscribe(heard.append)
        network.deaf = True  # what is said to a connection meanwhile is lost for good
        network.cut()
        await asyncio.sleep(0.3)
        network.deaf = False
        assert await hears(heard, *LOOK_AGAIN)


def test_a_server_that_falls_silent_is_left_soon_after_it_was_asked(
    open_store: Open, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub, "QUIET_S", 1.0)

    async def play() -> float:
        async with (
            Proxy(server.port) as network,
            running(open_store(f"redis://127.0.0.1:{network.port}/0", patience_s=0.1)) as here,
        ):
            network.deaf = True
            await asyncio.sleep(0.5)
            began = asyncio.get_running_loop().time()
            while here._crier.listens:  # noqa: ASYNC110  # what it waits for has no event
                await asyncio.sleep(0.02)
            return asyncio.get_running_loop().time() - began

    assert asyncio.run(play()) < 1.0


def test_a_subscription_that_is_refused_is_told_with_the_reason(
    mortal: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    mortal.ask("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-subscribe")

    async def play() -> None:
        url = f"redis://deaf:secret@127.0.0.1:{mortal.port}/0"
        async with running(RedisStorage(url, patience_s=0.3)):
            pass

    with caplog.at_level(logging.WARNING, "regista.storage"):
        asyncio.run(play())
    assert "no hints from other instances yet" in caplog.text
    assert "'subscribe'" in caplog.text
