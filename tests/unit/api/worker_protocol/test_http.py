"""The worker protocol's endpoints: what they answer, and what they refuse. wire.md 1.1 to 1.4, A2, A3."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from regista import JobStatus
from regista.workers.protocol.signing import sign, verify
from tests.acceptance.house import OLD, TOKEN, House, Raw, house, raw, until
from tests.stopwatch import Stopwatch

Scenario = Callable[[House, Raw], Awaitable[None]]


def play(scenario: Scenario, headers: dict[str, str] | None = None, **settings: Any) -> None:
    """Run a scenario with a house and a worker before its door."""

    async def run() -> None:
        async with house(**settings) as here, raw(here, **(headers or {})) as worker:
            await scenario(here, worker)

    asyncio.run(run())


@asynccontextmanager
async def asked(worker: Raw, method: str, path: str, **more: Any) -> AsyncIterator[aiohttp.ClientResponse]:
    async with worker.http.request(method, path, **more) as answer:
        yield answer


async def refusal(worker: Raw, method: str, path: str, **more: Any) -> tuple[int, str]:
    """The status and the code of a refusal, which must be a problem with words for old clients, too."""
    async with worker.http.request(method, path, **more) as answer:
        assert answer.content_type == "application/problem+json", await answer.text()
        body = await answer.json()
        assert body["error"]
        assert answer.headers["X-RXON-Version"]
        return answer.status, body["code"]


# -- the happy way -----------------------------------------------------------------------------------


def test_registration_is_answered_with_the_stock_members_and_ours() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        answer = await worker.register()
        assert (answer["status"], answer["lease_seconds"]) == ("registered", 45.0)
        assert answer["stream"] == {"url": "/_worker/ws/raw", "protocol": 1}
        assert answer["cluster_id"] == await here.director.workers.cluster_id()
        connected = here.director.dispatcher.find("raw")
        assert connected is not None
        assert answer["session"] == connected.worker.session
        assert "access_token" not in answer
        ours = await worker.register(current_tasks=[])
        assert (ours["lease_seconds"], ours["session"] > answer["session"]) == (30.0, True)

    play(scenario)


@pytest.mark.parametrize("version", ["1.0b3", "1.0b17"])
def test_every_answer_names_the_version_that_the_worker_speaks(version: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        for method, path in (
            ("POST", "/_worker/workers/register"),
            ("PATCH", "/_worker/workers/raw"),
            ("GET", "/_worker/workers/raw/tasks/next?timeout=0"),
            ("POST", "/_worker/auth/token"),
        ):
            body = {"worker_id": "raw", **OLD} if path.endswith("register") else None
            async with asked(worker, method, path, json=body) as answer:
                assert answer.headers["X-RXON-Version"] == version
        async with asked(worker, "GET", "/_public/status") as answer:
            assert "X-RXON-Version" not in answer.headers

    play(scenario, {"X-RXON-Version": version})


def test_a_task_and_its_result_and_the_result_again() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        job_id = await here.submit("echo", a=1)
        task = await worker.poll()
        assert (task["job_id"], task["type"], task["params"]) == (job_id, "echo", {"a": 1})
        for _ in range(3):
            answer = await worker.finish(task, {"echo": 1})
            assert answer == {"status": "accepted", "transition": "success_transition"}
        assert (await here.director.get(job_id)).status is JobStatus.FINISHED

    play(scenario)


def test_the_answer_to_a_result_says_what_it_did() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()

        async def said(**members: Any) -> str:
            await here.submit("echo")
            return str((await worker.finish(await worker.poll(), **members)).get("transition"))

        assert await said(status="partial") == "success_transition"
        assert await said(status="sideways") == "unhandled_status_failure"
        assert await said(status="cancelled") == "cancelled_handled"
        assert await said(status="failure", error={"code": "PERMANENT_ERROR"}) == "failure_handled"
        await here.director.submit("crowd", {"count": 1})
        answer = await worker.finish(await worker.poll(), {"echo": {"n": 0}})
        assert answer["transition"] == "parallel_branch_accepted"

    play(scenario)


def test_a_result_that_does_not_count_is_ignored_with_a_reason() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        job_id = await here.submit("echo")
        task = await worker.poll()
        other = await worker.finish({**task, "job_id": "no-such-job", "task_id": "no-such-job_1_0-1"})
        assert (other["status"], other["reason"]) == ("ignored", "job_not_found")
        mismatch = await worker.finish(task, worker_id="another")
        assert (mismatch["reason"], bool(mismatch["message"])) == ("worker_mismatch", True)
        stale = await worker.finish({**task, "task_id": task["task_id"][:-1] + "7"})
        assert stale["reason"] == "stale_task"
        await worker.finish(task, status="cancelled")
        late = await worker.finish({**task, "task_id": task["task_id"][:-1] + "7"})
        assert late["reason"] == "job_cancelled"
        assert (await here.director.get(job_id)).status is JobStatus.CANCELLED

    play(scenario)


def test_a_poll_asks_for_several_and_gets_a_list() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        await here.director.submit("crowd", {"count": 3})
        first = await worker.poll(limit=1)
        assert len(first["tasks"]) == 1
        await asyncio.sleep(0.05)
        assert 1 <= len((await worker.poll(limit=5))["tasks"]) <= 2

    play(scenario)


def test_an_empty_poll_is_204_after_the_time_it_asked_for_or_ours() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        for asked_s, waited_s in ((0.1, 0.1), (30, 0.3)):
            watch, began = Stopwatch(), time.monotonic()
            assert await worker.poll(asked_s) is None
            assert waited_s <= time.monotonic() - began
            assert watch.elapsed_s() < waited_s + 0.3

    play(scenario, poll_timeout_s=0.3)


def test_a_poll_whose_worker_went_away_takes_no_task_with_it() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        gone = asyncio.create_task(worker.poll(10))
        connected = here.director.dispatcher.find("raw")
        assert connected is not None
        await until(lambda: connected.credit == 1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await until(lambda: connected.credit == 0)
        job_id = await here.submit("echo")
        assert (await here.task(job_id)).state == "queued"
        assert (await worker.poll())["job_id"] == job_id

    play(scenario)


def test_a_heartbeat_without_a_body_renews_the_lease() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        async with asked(worker, "PATCH", "/_worker/workers/raw") as answer:
            assert (answer.status, await answer.json()) == (200, None)
        await worker.register()
        async with asked(worker, "PATCH", "/_worker/workers/raw") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ttl_refreshed"})

    play(scenario)


def test_an_unknown_worker_is_asked_for_everything_and_taken_in() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        assert await worker.beat() == {"status": "ok", "require_full_sync": True}
        job_id = await here.submit("echo")
        assert (await worker.poll())["job_id"] == job_id

    play(scenario)


def test_an_unknown_worker_of_the_newer_kind_reads_not_found_and_registers() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        body = {"worker_id": "raw", "status": "idle", "current_tasks": [], "skills_hash": "1"}
        async with asked(worker, "PATCH", "/_worker/workers/raw", json=body) as answer:
            assert answer.status == 404
            assert "not found" in (await answer.text()).lower()

    play(scenario, {"X-RXON-Version": "1.0b17"})


def test_progress_and_other_events_are_accepted() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        job_id = await here.submit("echo")
        task = await worker.poll()
        event = {"event_id": "e", "worker_id": "raw", "event_type": "progress", "payload": {"progress": 0.5}}
        for body in ({**event, "target_task_id": task["task_id"]}, {**event, "event_type": "frame"}):
            assert await worker.ask("POST", "/_worker/events", body) == {"status": "event_accepted"}
        await here.director.workers.write_signs()
        assert (await here.task(job_id)).progress == 0.5

    play(scenario)


# -- who may speak -----------------------------------------------------------------------------------

ENDPOINTS = [
    ("POST", "/_worker/workers/register"),
    ("PATCH", "/_worker/workers/raw"),
    ("GET", "/_worker/workers/raw/tasks/next"),
    ("POST", "/_worker/tasks/result"),
    ("POST", "/_worker/events"),
    ("POST", "/_worker/auth/token"),
    ("GET", "/_worker/ws/raw"),
    ("GET", "/_worker/ws"),
]


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_without_the_right_token_nobody_gets_in(method: str, path: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        for token, code in (("", "token_missing"), ("wrong", "token_unknown"), ("fälsch", "token_unknown")):
            headers = {"X-Worker-Token": token}
            assert await refusal(worker, method, path, headers=headers, data=b"{") == (401, code)
        bearer = {"X-Worker-Token": "", "Authorization": f"Bearer {TOKEN}"}
        async with asked(worker, method, path, headers=bearer, data=b"{", params={"timeout": "0"}) as answer:
            assert answer.status not in (401, 403)

    play(scenario)


def test_nobody_speaks_for_another_worker() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        mismatch = (403, "worker_mismatch")
        beat = {"worker_id": "other", "status": "idle"}
        assert await refusal(worker, "PATCH", "/_worker/workers/raw", json=beat) == mismatch
        headers = {"X-Worker-ID": "other"}
        for method, path, body in (
            ("PATCH", "/_worker/workers/raw", {"status": "idle"}),
            ("GET", "/_worker/workers/raw/tasks/next", None),
            ("POST", "/_worker/workers/register", {"worker_id": "raw", **OLD}),
            ("POST", "/_worker/tasks/result", {"job_id": "j", "task_id": "t", "worker_id": "raw"}),
            ("POST", "/_worker/events", {"event_type": "x", "worker_id": "raw"}),
        ):
            assert await refusal(worker, method, path, json=body, headers=headers) == mismatch
        assert here.director.dispatcher.find("raw") is None

    play(scenario)


# -- signatures --------------------------------------------------------------------------------------


def signed(body: dict[str, Any], key: str = TOKEN, signer: str = "raw") -> dict[str, Any]:
    return {**body, "security": {"signature": sign(body, key), "signer_id": signer}}


def test_a_signature_that_is_there_must_be_right() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        beat = {"worker_id": "raw", "status": "idle", "timestamp": int(time.time())}
        path = "/_worker/workers/raw"
        await worker.ask("PATCH", path, signed(beat))
        assert await refusal(worker, "PATCH", path, json=signed(beat, "another")) == (401, "signature_wrong")
        changed = {**signed(beat), "status": "busy"}
        assert await refusal(worker, "PATCH", path, json=changed) == (401, "signature_wrong")
        other = signed(beat, signer="other")
        assert await refusal(worker, "PATCH", path, json=other) == (403, "worker_mismatch")

    play(scenario)


def test_where_signatures_are_required_unsigned_messages_are_refused() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        missing = (401, "signature_missing")
        body = {"worker_id": "raw", **OLD}
        assert await refusal(worker, "POST", "/_worker/workers/register", json=body) == missing
        assert await refusal(worker, "PATCH", "/_worker/workers/raw", json={"status": "idle"}) == missing
        stamped = {**body, "timestamp": int(time.time())}
        await worker.ask("POST", "/_worker/workers/register", signed(stamped))
        unstamped = signed(body)
        code = (401, "timestamp_missing")
        assert await refusal(worker, "POST", "/_worker/workers/register", json=unstamped) == code

    play(scenario, worker_require_signatures=True)


def test_only_a_registration_must_be_of_this_minute() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        old = {"worker_id": "raw", **OLD, "timestamp": int(time.time()) - 90}
        code = (401, "timestamp_out_of_range")
        assert await refusal(worker, "POST", "/_worker/workers/register", json=signed(old)) == code
        await here.submit("echo")
        task = await worker.poll()
        stamp = int(time.time()) - 3600
        result = {
            "job_id": task["job_id"],
            "task_id": task["task_id"],
            "worker_id": "raw",
            "timestamp": stamp,
        }
        for _ in range(2):  # and the same message again is answered like the first
            answer = await worker.ask("POST", "/_worker/tasks/result", signed(result))
            assert answer["status"] == "accepted"
        beat = {"worker_id": "raw", "status": "idle", "current_tasks": [], "timestamp": stamp}
        for _ in range(3):
            assert (await worker.ask("PATCH", "/_worker/workers/raw", signed(beat)))["status"] == "ok"

    play(scenario)


def test_tasks_are_signed_when_there_is_a_key_for_it() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        await here.submit("echo", a=1)
        task = await worker.poll()
        left_out = ("sig", "stable_task_id", "attempt", "checkpoint")
        assert verify(task, task["sig"], "a-secret-of-ours", left_out)

    play(scenario, orchestrator_secret_key="a-secret-of-ours")


# -- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"7", b'"x"', b"\xff\xfe", b'{"worker_id": 7}', b"[" * 50_000, b'{"a": NaN}'],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/_worker/workers/register"),
        ("PATCH", "/_worker/workers/raw"),
        ("POST", "/_worker/tasks/result"),
        ("POST", "/_worker/events"),
    ],
)
def test_a_body_that_makes_no_sense_is_a_400_and_changes_nothing(
    method: str, path: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    if method == "PATCH" and not body:
        return  # a heartbeat may be empty

    async def scenario(here: House, worker: Raw) -> None:
        assert await refusal(worker, method, path, data=body) == (400, "bad_message")
        assert await here.director.workers.describe() == []

    play(scenario)
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize(
    "query", ["timeout=soon", "timeout=-1", "timeout=inf", "limit=0", "limit=-1", "limit=1.5", "limit=99999"]
)
def test_a_poll_with_a_parameter_that_makes_no_sense_is_a_400(query: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        path = f"/_worker/workers/raw/tasks/next?{query}"
        assert await refusal(worker, "GET", path) == (400, "bad_parameter")

    play(scenario)


@pytest.mark.parametrize("worker_id", ["a b", "a.b", "x" * 129, "ü", "%00"])
def test_an_id_that_is_none_is_a_400_everywhere(worker_id: str) -> None:
    async def scenario(here: House, worker: Raw) -> None:
        bad = (400, "bad_identifier")
        assert await refusal(worker, "PATCH", f"/_worker/workers/{worker_id}", json={}) == bad
        assert await refusal(worker, "GET", f"/_worker/workers/{worker_id}/tasks/next") == bad
        body = {**OLD, "worker_id": worker_id}
        assert await refusal(worker, "POST", "/_worker/workers/register", json=body) == bad
        result = {"job_id": "j", "task_id": "t", "worker_id": worker_id}
        assert await refusal(worker, "POST", "/_worker/tasks/result", json=result) == bad

    play(scenario)


def test_a_body_that_is_too_large_is_a_413() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        body = {"job_id": "j", "task_id": "t", "worker_id": "raw", "data": "x" * 5000}
        code = (413, "body_too_large")
        assert await refusal(worker, "POST", "/_worker/tasks/result", json=body) == code

    play(scenario, max_body_bytes=4096)


def test_a_result_without_a_worker_is_a_400_and_a_header_may_name_it() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        await here.submit("echo")
        task = await worker.poll()
        body = {"job_id": task["job_id"], "task_id": task["task_id"]}
        path = "/_worker/tasks/result"
        assert await refusal(worker, "POST", path, json=body) == (400, "bad_message")
        async with asked(worker, "POST", path, json=body, headers={"X-Worker-ID": "raw"}) as answer:
            assert (await answer.json())["status"] == "accepted"

    play(scenario)


def test_a_result_whose_data_no_store_could_keep_is_a_failure_and_no_crash() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        job_id = await here.submit("echo")
        task = await worker.poll()
        body = b'{"job_id": "%s", "task_id": "%s", "worker_id": "raw", "data": {"n": 1%s}}' % (
            task["job_id"].encode(),
            task["task_id"].encode(),
            b"0" * 400,
        )
        async with asked(worker, "POST", "/_worker/tasks/result", data=body) as answer:
            assert answer.status in (200, 400)
        assert (await here.director.get(job_id)).status in (
            JobStatus.QUARANTINED,
            JobStatus.WAITING_FOR_WORKER,
        )

    play(scenario)


def test_a_job_that_is_submitted_while_a_poll_is_open_is_handed_over_at_once() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        poll = asyncio.create_task(worker.poll(5))
        connected = here.director.dispatcher.find("raw")
        assert connected is not None
        await until(lambda: connected.credit == 1)
        watch = Stopwatch()
        await here.submit("echo")
        assert await poll is not None
        assert watch.elapsed_s() < 0.5

    play(scenario)


def test_a_result_that_cannot_be_kept_now_is_sent_again_by_either_kind() -> None:
    async def scenario(here: House, worker: Raw) -> None:
        await worker.register()
        await here.submit("echo")
        task = await worker.poll()
        body = {"job_id": task["job_id"], "task_id": task["task_id"], "worker_id": "raw"}
        path = "/_worker/tasks/result"
        await here.director.engine.stop()
        assert await refusal(worker, "POST", path, json=body) == (503, "stopped")
        # the older SDK would throw it away: to that one the line is cut
        with pytest.raises(aiohttp.ClientConnectionError):
            await refusal(worker, "POST", path, json=body, headers={"X-RXON-Version": "1.0b3"})

    play(scenario)
