"""What a worker does with orchestrators that answer oddly: it is never in a hurry, and loses nothing."""

import asyncio
import logging
from typing import Any

import pytest

from regista.sdk.connection import OrchestratorConnection
from regista.sdk.http import OrchestratorHttp
from regista.worker import Worker
from tests.acceptance.odd_kit import WELCOME, Answer, OddOrchestrator, gives_once, greets, hangs_up, says
from tests.acceptance.stream_kit import House, connected, play, until

TASK = {"task_id": "j_1_0-1", "job_id": "j", "type": "work"}
#: What a worker may ask in a second and a half; in a hurry it would be thousands, or at best a hundred.
MOST = 50


def worker_of(value: Any = None) -> Worker:
    worker = Worker("w")
    worker.task("work")(lambda params: value)
    return worker


ODD: dict[str, dict[str, Answer]] = {
    "no wait for tasks": {"poll": says(status=204)},
    "empty lists of tasks": {"poll": says({"tasks": []})},
    "a list for an answer": {"poll": says([])},
    "a deadline beyond all time": {"poll": says({"tasks": [TASK | {"deadline": 1e300}]})},
    "polls refused": {"poll": says({}, status=400)},
    "polls cut off": {"poll": hangs_up},
    "beats cut off": {"patch": hangs_up},
    "results cut off": {"poll": gives_once(TASK), "result": hangs_up},
    "a number of tasks to stop": {"patch": says({"cancel_task_ids": 5})},
    "a lease of less than nothing": {"register": says({"session": 1, "lease_seconds": -1})},
    "text after the welcome": {"ws": greets(WELCOME, "hello")},
    "nonsense after the welcome": {"ws": greets(WELCOME, b"\xc1\xc1")},
    "nonsense for a welcome": {"ws": greets(b"\xc1")},
}


@pytest.mark.parametrize("answers", ODD.values(), ids=ODD.keys())
def test_whatever_it_is_told_a_worker_asks_a_few_times_and_has_no_traceback(
    answers: dict[str, Answer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "regista.worker")

    async def main() -> None:
        async with OddOrchestrator(**answers) as odd, connected(worker_of(), odd.url, wait=False):
            await asyncio.sleep(1.5)
            assert odd.asked["register"] >= 1
            assert sum(odd.asked.values()) < MOST

    play(main())
    assert not [record for record in caplog.records if record.exc_info]


def test_a_poll_that_is_refused_says_with_which_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regista.worker")

    async def main() -> None:
        odd = OddOrchestrator(poll=says({"detail": "no such limit"}, status=400))
        async with odd, connected(worker_of(), odd.url, wait=False):
            await until(lambda: "no such limit" in caplog.text)

    play(main())
    assert "HTTP 400 for a poll" in caplog.text


def test_a_result_that_is_sent_back_for_what_it_is_becomes_a_failure_that_says_so() -> None:
    async def main() -> None:
        odd = OddOrchestrator(poll=gives_once(TASK), result=says({"detail": "not like that"}, status=400))
        async with odd, connected(worker_of({"n": 1}), odd.url) as remote:
            await until(lambda: len(odd.results) >= 2 and not remote.held())
            first, second = odd.results
            assert (first["data"], first["error"]) == ({"n": 1}, None)
            assert (second["data"], second["error"]["code"]) == (None, "PERMANENT_ERROR")
            assert "not like that" in second["error"]["message"]

    play(main())


def test_a_result_that_is_sent_back_for_another_reason_is_kept_and_told_again() -> None:
    async def main() -> None:
        odd = OddOrchestrator(poll=gives_once(TASK), result=says({}, status=404))
        async with odd, connected(worker_of({"n": 1}), odd.url) as remote:
            await until(lambda: len(odd.results) >= 2)
            assert all(each["data"] == {"n": 1} for each in odd.results)
            assert remote.held() == ["j_1_0-1"]

    play(main())


@pytest.mark.slow
def test_one_that_ends_every_conversation_at_once_is_left_for_the_next_choice() -> None:
    worker = worker_of({"n": 1})

    async def main() -> None:
        async with (
            OddOrchestrator(poll=says(status=503)) as odd,
            House() as house,
            connected(worker, odd.url, house.url, wait=False) as remote,
        ):
            await until(lambda: remote.transports()[house.url] == "stream", 8)
            assert (await house.run()).data == {"n": 1}

    play(main(), 9.5)


def test_a_search_for_a_stream_that_fails_ends_the_conversation_and_not_the_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(OrchestratorConnection, "stream_retry_s", 0.1)

    async def main() -> None:
        async with OddOrchestrator() as odd, connected(worker_of(), odd.url) as remote:
            await until(lambda: odd.asked["ws"] >= 1)
            monkeypatch.setattr(OrchestratorHttp, "headers", property(lambda _: 1 / 0))
            await until(lambda: [record for record in caplog.records if record.exc_info])
            monkeypatch.undo()
            before = odd.asked["register"]
            await until(lambda: odd.asked["register"] > before and remote.transports()[odd.url] == "poll")

    play(main())
