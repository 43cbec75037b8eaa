"""Jobs over real HTTP: every arrow of a client's day."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from regista import (
    Config,
    OrchestratorEngine,
    PermanentError,
    RetryPolicy,
    StateMachineBlueprint,
    TransientError,
    Worker,
)
from regista.api import STAGE
from regista.blueprint import ActionFactory, JobContext
from tests.acceptance.serving import House, serving
from tests.support import answer, fan_out, one_task, script

#: The members of a job, in their order (spec/wire.md, A17).
MEMBERS = [
    *("id", "blueprint", "version", "status", "state", "input", "data", "result", "error", "progress"),
    *("waiting_for", "attempts", "created_at", "updated_at", "finished_at", "search_attributes"),
    *("parent_id", "bill"),
]


def worker(concurrency: int = 10) -> Worker:
    """Does "work": what `params` say."""
    hands = Worker("hands", concurrency=concurrency)

    @hands.task("work")
    async def work(params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(params.get("sleep", 0))
        if params.get("fail"):
            raise TransientError("no luck")
        return {"doubled": params.get("n", 0) * 2}

    return hands


def asks() -> StateMachineBlueprint:
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.await_human_approval("publish?", transitions={"yes": "done", "no": "again"})

    def again(context: JobContext, actions: ActionFactory) -> None:
        actions.await_human_approval("really not?", transitions={"yes": "done", "no": "done"})

    return script(start, "done", name="asks", again=again)


def breaks() -> StateMachineBlueprint:
    """Quarantined until its data is mended."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to("done" if "mended" in context.state_history else str(context.initial_data))

    return script(start, "done", name="breaks")


def run(body: Callable[[House], Coroutine[Any, Any, None]], *blueprints: Any, **options: Any) -> None:
    async def main() -> None:
        async with serving(*blueprints, **options) as house:
            await body(house)

    asyncio.run(main())


# -- create, look, wait ----------------------------------------------------------------------------


def test_a_job_is_created_waited_for_and_has_all_its_members() -> None:
    async def body(house: House) -> None:
        created = await house.post("/api/v1/jobs", {"blueprint": "script", "input": {"n": 21}})
        assert created.status == 202
        job = created.json
        assert created.headers["Location"] == f"/api/v1/jobs/{job['id']}"
        ended = (await house.get(f"/api/v1/jobs/{job['id']}?wait=5")).json
        assert list(ended) == MEMBERS
        assert (ended["status"], ended["result"]) == ("finished", {"doubled": 42})
        assert (ended["input"], ended["error"], ended["parent_id"]) == ({"n": 21}, None, None)
        (attempt,) = ended["attempts"]
        contract = ["task_id", "worker_id", "state", "started_at", "error"]
        assert list(attempt) == [*contract, "attempt_id", "attempt", "type"]
        assert attempt["attempt_id"] == attempt["task_id"]
        assert (attempt["attempt"], attempt["type"]) == (1, "work")
        assert (attempt["worker_id"], attempt["state"]) == ("hands", "finished")
        assert list(ended["bill"]) == ["seconds", "cost"]
        assert ended["created_at"] <= ended["finished_at"]
        assert "ada" not in str(ended)  # neither who asked, nor with what token

    run(body, one_task(), workers=[worker()])


def test_submit_and_result_are_one_request() -> None:
    async def body(house: House) -> None:
        done = await house.post("/api/v1/jobs?wait=5", {"blueprint": "script", "input": {"n": 1}})
        assert (done.status, done.json["status"]) == (200, "finished")
        busy = await house.post("/api/v1/jobs?wait=0.05", {"blueprint": "script", "input": {"sleep": 5}})
        assert (busy.status, busy.json["status"]) == (202, "waiting_for_worker")

    run(body, one_task(), workers=[worker()])


def test_a_wait_answers_when_the_job_settles_and_not_before() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", {"sleep": 0.3})
        began = time.monotonic()
        waited = (await house.get(f"/api/v1/jobs/{job['id']}?wait=9")).json
        assert waited["status"] == "finished"
        assert 0.2 < time.monotonic() - began < 5

    run(body, one_task(), workers=[worker()])


def test_a_wait_is_cut_at_the_longest_that_is_allowed() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script")
        began = time.monotonic()
        assert (await house.get(f"/api/v1/jobs/{job['id']}?wait=600")).json["status"] == "waiting_for_worker"
        assert time.monotonic() - began < 3

    run(body, one_task(), max_wait_s=0.2)


def test_a_quarantined_job_counts_as_settled() -> None:
    async def body(house: House) -> None:
        job = await house.submit("breaks")
        waited = (await house.get(f"/api/v1/jobs/{job['id']}?wait=9")).json
        assert (waited["status"], waited["waiting_for"]["kind"]) == ("quarantined", "release")
        assert waited["error"]["code"] == "action_error"

    run(body, breaks())


def test_a_job_that_ended_long_ago_still_tells_its_attempts(tmp_path: Path) -> None:
    def retried() -> StateMachineBlueprint:
        return one_task(retry=RetryPolicy(max_attempts=2, first_s=0.0))

    async def body(house: House) -> None:
        job = await house.submit("script", {"fail": True})
        await house.director.wait(job["id"])
        await house.director.recorder.drain()  # nothing of it is left in the outbox
        assert await house.director.storage.tail(job["id"], 0) == []
        old = (await house.get(f"/api/v1/jobs/{job['id']}")).json
        assert (old["status"], old["error"]["code"]) == ("quarantined", "TRANSIENT_ERROR")
        assert [one["state"] for one in old["attempts"]] == ["failed", "failed"]
        assert old["attempts"][0]["error"] == {"code": "TRANSIENT_ERROR", "message": "no luck"}

    run(body, retried(), workers=[worker()], storage=f"sqlite:{tmp_path / 'jobs.db'}")


def test_what_a_worker_tells_about_its_error_is_shown_with_the_attempt() -> None:
    careful = Worker("careful")

    @careful.task("work")
    async def work(params: dict[str, Any]) -> None:
        if params.get("known"):
            raise PermanentError("broken file", file="a.mov")
        raise KeyError("frame")

    async def body(house: House) -> None:
        known = await house.submit("script", {"known": True})
        shown = (await house.get(f"/api/v1/jobs/{known['id']}?wait=5")).json
        told = {"code": "PERMANENT_ERROR", "message": "broken file", "details": {"file": "a.mov"}}
        assert shown["attempts"][0]["error"] == told
        assert list(shown["error"]) == ["code", "message"]
        raised = await house.submit("script")
        await house.get(f"/api/v1/jobs/{raised['id']}?wait=5")
        error = (await house.get(f"/api/v1/jobs/{raised['id']}")).json["attempts"][0]["error"]
        assert error["details"]["type"] == "KeyError"
        assert "KeyError" in str(error["details"]["traceback"])

    run(body, one_task(retry=RetryPolicy(max_attempts=1)), workers=[careful])


def test_open_attempts_and_what_a_job_waits_for_are_shown() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", {"sleep": 5})
        shown = (await house.get(f"/api/v1/jobs/{job['id']}")).json
        waiting = shown["waiting_for"]
        assert (waiting["kind"], waiting["detail"]["type"]) == ("worker", "work")
        assert waiting["since"] is not None
        (attempt,) = shown["attempts"]
        assert attempt["state"] in ("offered", "started")
        assert waiting["detail"]["task_id"] == job["waiting_for"]["detail"]["task_id"]
        assert attempt["task_id"] == attempt["attempt_id"] == waiting["detail"]["attempt_id"]

    run(body, one_task(), workers=[worker()])


def test_the_open_branches_of_a_fan_out_are_counted() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script")
        shown = (await house.get(f"/api/v1/jobs/{job['id']}")).json
        assert shown["waiting_for"]["detail"] == {"aggregator": "join", "total": 3, "open": 3}
        assert [one["state"] for one in shown["attempts"]] == ["queued"] * 3

    run(body, fan_out(3))


def test_times_are_shown_in_the_zone_of_the_orchestrator() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script")
        assert job["created_at"].endswith(("+01:00", "+02:00"))
        events = (await house.get(f"/api/v1/jobs/{job['id']}/history")).json["items"]
        assert events[0]["at"][-6:] == job["created_at"][-6:]

    run(body, one_task(), tz="Europe/Madrid")


# -- keys ------------------------------------------------------------------------------------------


def test_the_same_key_returns_the_same_job_from_header_and_body_alike() -> None:
    async def body(house: House) -> None:
        wish = {"blueprint": "script", "input": {"n": 1}}
        first = (await house.post("/api/v1/jobs", wish, headers={"Idempotency-Key": "k"})).json
        second = (await house.post("/api/v1/jobs", {**wish, "idempotency_key": "k"})).json
        assert first["id"] == second["id"]
        other = await house.post("/api/v1/jobs", {**wish, "input": {}}, headers={"Idempotency-Key": "k"})
        assert (other.status, other.code) == (409, "idempotency_conflict")
        assert other.json["job_id"] == first["id"]
        stranger = await house.submit("script", {"n": 1}, idempotency_key="k", token="t-bob")
        assert stranger["id"] != first["id"]

    run(body, one_task())


# -- many at once ----------------------------------------------------------------------------------


def test_a_batch_answers_each_wish_in_its_place() -> None:
    async def body(house: House) -> None:
        used = await house.submit("script", {"n": 0}, idempotency_key="used")
        wishes: list[Any] = [
            {"blueprint": "script", "input": {"n": 1}},
            {"blueprint": "scirpt"},
            {"blueprint": "script", "input": 5},
            {"blueprint": "script", "inptu": {}},
            {"blueprint": "script", "input": {"n": 9}, "idempotency_key": "used"},
            {"blueprint": "script", "input": {"n": 0}, "idempotency_key": "used"},
            {"blueprint": "script", "input": {"n": 2**70}},
            {"blueprint": "script", "input": {"n": 2}},
        ]
        answer = await house.post("/api/v1/jobs:batch", {"jobs": wishes})
        assert answer.status == 200
        items = answer.json["items"]
        assert [item.get("code") for item in items] == [
            None,
            "blueprint_not_found",
            "invalid_body",
            "unknown_member",
            "idempotency_conflict",
            None,
            "not_serializable",
            None,
        ]
        assert list(items[0]) == MEMBERS
        assert items[5]["id"] == used["id"]
        assert "did you mean input?" in items[3]["detail"]
        listed = (await house.get("/api/v1/jobs")).json["items"]
        assert {item["id"] for item in listed} == {items[0]["id"], items[7]["id"], used["id"]}

    run(body, one_task())


def test_a_batch_can_answer_with_ids_alone() -> None:
    async def body(house: House) -> None:
        wishes = [{"blueprint": "script", "input": {"n": n}} for n in range(50)]
        ids = (await house.post("/api/v1/jobs:batch?return=ids", {"jobs": wishes})).json["items"]
        assert len(set(ids)) == 50
        assert (await house.get(f"/api/v1/jobs/{ids[7]}")).json["input"] == {"n": 7}

    run(body, one_task())


def test_a_batch_beyond_the_limit_is_refused_whole() -> None:
    async def body(house: House) -> None:
        answer = await house.post("/api/v1/jobs:batch", {"jobs": [{"blueprint": "script"}] * 4})
        assert (answer.status, answer.code) == (400, "batch_too_large")
        assert (await house.get("/api/v1/jobs")).json["items"] == []

    run(body, one_task(), max_batch=3)


def test_waiting_for_many_answers_with_the_first_and_names_the_rest() -> None:
    async def body(house: House) -> None:
        slow = await house.submit("script", {"sleep": 9})
        quick = await house.submit("script", {"sleep": 0.1, "n": 4})
        stranger = await house.submit("script", {}, token="t-bob")
        asked = [slow["id"], quick["id"], "nonsense", stranger["id"], slow["id"]]
        answer = (await house.post("/api/v1/jobs:wait", {"ids": asked, "timeout": 9})).json
        assert [item["result"] for item in answer["items"]] == [{"doubled": 8}]
        assert answer["pending"] == [slow["id"]]
        assert answer["unknown"] == ["nonsense", stranger["id"]]
        none = (await house.post("/api/v1/jobs:wait", {"ids": [slow["id"]], "timeout": 0.05})).json
        assert (none["items"], none["pending"]) == ([], [slow["id"]])
        nobody = (await house.post("/api/v1/jobs:wait", {"ids": ["nonsense"], "timeout": 9})).json
        assert nobody == {"items": [], "pending": [], "unknown": ["nonsense"]}

    run(body, one_task(), workers=[worker()])


def test_a_wait_that_lingers_gathers_those_that_end_soon_after() -> None:
    async def body(house: House) -> None:
        ids = [(await house.submit("script", {"sleep": 0.05 * n}))["id"] for n in range(4)]
        asked = {"ids": ids, "timeout": 9, "linger": 2}
        answer = (await house.post("/api/v1/jobs:wait", asked)).json
        assert {item["id"] for item in answer["items"]} == set(ids)
        assert answer["pending"] == []

    run(body, one_task(), workers=[worker()])


# -- lists -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_jobs_are_listed_newest_first_in_pages_keyed_or_not(kind: str, tmp_path: Path) -> None:
    async def body(house: House) -> None:
        ids = []
        for n in range(7):
            key = {"idempotency_key": f"k{n}"} if n % 2 else {}
            ids.append((await house.submit("script", {"n": n}, **key))["id"])
            if n == 3:
                await house.director.recorder.drain()  # some are in history, some on their way
        pages, path = [], "/api/v1/jobs?limit=3"
        while True:
            page = (await house.get(path)).json
            pages.append([item["id"] for item in page["items"]])
            if page["next"] is None:
                break
            path = f"/api/v1/jobs?limit=3&next={page['next']}"
        assert [one for page in pages for one in page] == ids[::-1]
        assert [len(page) for page in pages] == [3, 3, 1]

    storage = "memory" if kind == "memory" else f"sqlite:{tmp_path / 'jobs.db'}"
    run(body, one_task(), storage=storage)


def test_a_list_is_filtered_by_status_and_blueprint_and_is_never_behind() -> None:
    async def body(house: House) -> None:
        first = await house.submit("script")
        second = await house.submit("asks")
        waits = await house.get("/api/v1/jobs?status=waiting_for_human")
        assert [item["id"] for item in waits.json["items"]] == [second["id"]]
        scripts = await house.get("/api/v1/jobs?blueprint=script")
        assert [item["id"] for item in scripts.json["items"]] == [first["id"]]
        await house.post(f"/api/v1/jobs/{second['id']}/cancel")
        assert (await house.get("/api/v1/jobs?status=waiting_for_human")).json["items"] == []
        gone = await house.get("/api/v1/jobs?status=cancelled")
        assert [item["id"] for item in gone.json["items"]] == [second["id"]]

    run(body, one_task(), asks())


# -- who sees what ---------------------------------------------------------------------------------


def test_a_client_sees_its_own_jobs_alone_and_an_operator_all() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script")
        path = f"/api/v1/jobs/{job['id']}"
        for method, tail in [
            ("GET", ""),
            ("GET", "/history"),
            ("GET", "/events"),
            ("GET", "/explain"),
            ("POST", "/cancel"),
            ("POST", "/release"),
            ("POST", "/retry"),
            ("POST", "/fail"),
            ("POST", "/fork"),
        ]:
            answer = await house.call(method, path + tail, token="t-bob")
            assert (answer.status, answer.code) == (404, "job_not_found"), tail
        refused = await house.post(path + "/approval", {"decision": "yes"}, token="t-bob")
        assert refused.status == 404
        assert (await house.get("/api/v1/jobs", token="t-bob")).json["items"] == []
        assert [item["id"] for item in (await house.get("/api/v1/jobs", token="t-ops")).json["items"]] == [
            job["id"]
        ]
        assert (await house.get(path, token="t-ops")).status == 200
        assert (await house.get(path)).json["status"] == "waiting_for_worker"

    run(body, one_task())


def test_nobody_gets_in_without_a_token() -> None:
    async def body(house: House) -> None:
        for path in ("/api/v1/jobs", "/api/jobs", "/api/v1/events", "/api/v1/workers", "/api/anything"):
            missing = await house.get(path, token=None)
            assert (missing.status, missing.code) == (401, "token_missing")
            wrong = await house.get(path, token="t-eve")
            assert (wrong.status, wrong.code) == (401, "token_unknown")
        bearer = {"Authorization": "Bearer t-ada"}
        assert (await house.get("/api/v1/jobs", token=None, headers=bearer)).status == 200
        assert (await house.get("/_public/status", token=None)).json["status"] == "ok"
        assert (await house.get("/_public/ready", token=None)).json["status"] == "ready"

    run(body, one_task())


# -- steering --------------------------------------------------------------------------------------


def test_cancel_ends_a_job_once_and_says_so_when_it_is_too_late() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script")
        path = f"/api/v1/jobs/{job['id']}/cancel"
        cancelled = await house.post(path, {"reason": "not needed"})
        assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
        assert cancelled.json["error"] == {"code": "cancelled", "message": "not needed"}
        late = await house.post(path)
        assert (late.status, late.code, late.json["job_status"]) == (409, "job_already_terminal", "cancelled")

    run(body, one_task())


def test_a_running_job_is_cancelling_until_its_worker_has_let_go() -> None:
    stubborn = Worker("stubborn")

    @stubborn.task("work")
    async def work(params: dict[str, Any]) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.3)

    async def body(house: House) -> None:
        job = await house.submit("script")
        answer = await house.post(f"/api/v1/jobs/{job['id']}/cancel")
        assert answer.json["status"] == "cancelling"
        again = await house.post(f"/api/v1/jobs/{job['id']}/cancel", {"reason": "really"})
        assert (again.status, again.json["status"]) == (200, "cancelling")
        assert answer.json["waiting_for"]["kind"] == "cancel"
        assert (await house.get(f"/api/v1/jobs/{job['id']}?wait=5")).json["status"] == "cancelled"

    run(body, one_task(), workers=[stubborn])


def test_the_owner_approves_and_the_same_decision_twice_is_fine() -> None:
    async def body(house: House) -> None:
        job = await house.submit("asks")
        detail = (await house.get(f"/api/v1/jobs/{job['id']}")).json["waiting_for"]["detail"]
        assert (detail["message"], detail["decisions"]) == ("publish?", ["no", "yes"])
        path = f"/api/v1/jobs/{job['id']}/approval"
        unknown = await house.post(path, {"decision": "perhaps"})
        assert (unknown.status, unknown.code) == (409, "approval_conflict")
        said = {"decision": "yes", "comment": "fine", "data": {"by": "ada"}}
        assert (await house.post(path, said)).status == 200
        assert (await house.post(path, said)).status == 200
        other = await house.post(path, {"decision": "no"})
        assert (other.status, other.json["job_status"]) == (409, "finished")
        assert (await house.get(f"/api/v1/jobs/{job['id']}")).json["result"] == {"by": "ada"}

    run(body, asks())


def test_body_of_an_approval_is_looked_at_only_with_its_token_and_only_if_it_is_small() -> None:
    async def body(house: House) -> None:
        job = await house.submit("asks")
        token = (await house.get(f"/api/v1/jobs/{job['id']}")).json["waiting_for"]["detail"]["token"]
        hook = f"/_public/webhooks/approval/{job['id']}"
        large = {"decision": "no", "comment": "x" * 70_000}

        assert (await house.call("POST", f"{hook}?token=wrong", raw=b"not JSON", token=None)).status == 403
        assert (await house.post(f"{hook}?token=wrong", large, token=None)).status == 403
        assert (await house.post(f"{hook}?token={token}", large, token=None)).status == 413
        assert (await house.call("POST", f"{hook}?token={token}", raw=b"not JSON", token=None)).status == 400

    run(body, asks())


def test_an_outsider_approves_with_the_token_that_the_owner_was_shown() -> None:
    async def body(house: House) -> None:
        job = await house.submit("asks")
        token = (await house.get(f"/api/v1/jobs/{job['id']}")).json["waiting_for"]["detail"]["token"]
        hook = f"/_public/webhooks/approval/{job['id']}"

        async def say(decision: str, with_token: str) -> Any:
            return await house.post(f"{hook}?token={with_token}", {"decision": decision}, token=None)

        assert (await house.post(hook, {"decision": "no"}, token=None)).status == 401
        wrong = await say("no", "0" * 64)
        assert (wrong.status, wrong.code) == (403, "token_wrong")
        elsewhere = await house.post(f"/_public/webhooks/approval/x?token={token}", {"decision": "no"})
        assert elsewhere.status == 403
        assert (await say("no", token)).json == {"status": "approval_received", "job_id": job["id"]}
        # The job asks another question by now: the old token neither answers it nor takes its word back.
        assert (await say("no", token)).status == 200
        assert (await say("yes", token)).status == 409
        shown = (await house.get(f"/api/v1/jobs/{job['id']}")).json
        assert (shown["status"], shown["state"]) == ("waiting_for_human", "again")
        newer = shown["waiting_for"]["detail"]["token"]
        assert newer != token
        assert (await say("yes", newer)).status == 200
        assert (await say("no", token)).status == 200
        assert (await say("yes", token)).status == 409

    run(body, asks())


@pytest.mark.parametrize("word", ["release", "retry"])
def test_a_quarantined_job_is_mended_and_goes_on(word: str) -> None:
    async def body(house: House) -> None:
        job = await house.submit("breaks")
        path = f"/api/v1/jobs/{job['id']}"
        assert (await house.get(path + "?wait=5")).json["status"] == "quarantined"
        assert (await house.post(f"{path}/{word}", {"data": {"mended": True}})).status == 200
        assert (await house.get(path + "?wait=5")).json["status"] == "finished"
        late = await house.post(f"{path}/{word}")
        assert (late.status, late.code) == (409, "not_quarantined")

    run(body, breaks())


def test_a_quarantined_job_is_given_up() -> None:
    async def body(house: House) -> None:
        job = await house.submit("breaks")
        await house.get(f"/api/v1/jobs/{job['id']}?wait=5")
        failed = (await house.post(f"/api/v1/jobs/{job['id']}/fail", {"reason": "hopeless"})).json
        assert (failed["status"], failed["error"]["message"]) == ("failed", "hopeless")

    run(body, breaks())


def test_a_fork_is_a_new_job_like_the_old_one_but_for_what_is_named() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", {"n": 1, "kept": True}, search_attributes={"Kind": "a"})
        answer = await house.post(f"/api/v1/jobs/{job['id']}/fork", {"input": {"n": 2}})
        fork = answer.json
        assert answer.status == 202
        assert answer.headers["Location"] == f"/api/v1/jobs/{fork['id']}"
        assert fork["id"] != job["id"]
        assert fork["input"] == {"n": 2, "kept": True}
        assert fork["search_attributes"] == {"Kind": "a"}
        assert (await house.post(f"/api/v1/jobs/{job['id']}/fork")).json["input"] == job["input"]

    run(body, one_task())


# -- why and what ----------------------------------------------------------------------------------


def test_explain_says_why_a_job_does_not_go_on() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script")
        told = (await house.get(f"/api/v1/jobs/{job['id']}/explain")).json
        assert told["id"] == job["id"]
        assert "no_worker_with_skill" in [reason["code"] for reason in told["reasons"]]
        assert told["sentences"]

    run(body, one_task())


def test_history_is_told_in_pages_whole_and_in_order() -> None:
    async def body(house: House) -> None:
        job = (await house.post("/api/v1/jobs?wait=5", {"blueprint": "script"})).json
        path = f"/api/v1/jobs/{job['id']}/history"
        events = (await house.get(path)).json["items"]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert (events[0]["type"], events[-1]["type"]) == ("job_created", "job_finished")
        paged: list[Any] = []
        tail = "?limit=2"
        while True:
            page = (await house.get(path + tail)).json
            paged += page["items"]
            if page["next"] is None:
                break
            tail = f"?limit=2&next={page['next']}"
        assert paged == events

    run(body, one_task(), workers=[worker()])


# -- the documents' own paths ----------------------------------------------------------------------


def by_endpoint(version: str | None) -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint("greet", api_endpoint="/jobs/greet", api_version=version)

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", {}, transitions={"success": "done"})

    blueprint.handler_for("done", is_end=True)(answer)
    return blueprint


@pytest.mark.parametrize(("version", "prefix"), [(None, "/api"), ("v1", "/api/v1"), ("v2", "/api/v2")])
def test_a_job_is_created_at_its_blueprints_own_endpoint(version: str | None, prefix: str) -> None:
    async def body(house: House) -> None:
        order = {"initial_data": {"name": "Ada"}, "result_timeout": 60}
        created = await house.post(f"{prefix}/jobs/greet", order)
        assert created.status == 202
        assert list(created.json) == ["status", "job_id"]
        assert created.json["status"] == "accepted"
        shown = (await house.get(f"{prefix}/jobs/{created.json['job_id']}")).json
        assert (shown["blueprint"], shown["input"]) == ("greet", {"name": "Ada"})
        bare = await house.post(f"{prefix}/jobs/greet", {"name": "Bob"})
        assert (await house.get(f"/api/jobs/{bare.json['job_id']}")).json["input"] == {"name": "Bob"}
        odd = await house.post(f"{prefix}/jobs/greet", {"initial_data": {}, "policy": {}})
        assert (odd.status, odd.code) == (400, "unknown_member")

    run(body, by_endpoint(version))


def test_the_common_routes_answer_below_a_blueprints_version_as_the_documents_say() -> None:
    async def body(house: House) -> None:
        job = (await house.post("/api/v2/jobs/greet", {})).json["job_id"]
        cancelled = await house.post(f"/api/v2/jobs/{job}/cancel")
        assert cancelled.json == {"status": "cancellation_request_accepted"}
        assert (await house.get(f"/api/v2/jobs/{job}")).json["status"] == "cancelled"
        assert (await house.get(f"/api/v3/jobs/{job}")).status == 404
        assert (await house.post("/api/v3/jobs/greet", {})).status == 404

    run(body, by_endpoint("v2"))


def test_every_route_answers_without_the_version_too() -> None:
    async def body(house: House) -> None:
        created = await house.post("/api/jobs", {"blueprint": "script"})
        assert created.headers["Location"] == f"/api/jobs/{created.json['id']}"
        assert (await house.get(f"/api/jobs/{created.json['id']}")).status == 200
        assert (await house.post("/api/jobs:wait", {"ids": ["x"], "timeout": 0})).status == 200

    run(body, one_task())


# -- the rest of the house -------------------------------------------------------------------------


def test_blueprints_are_listed_described_and_drawn() -> None:
    async def body(house: House) -> None:
        listed = (await house.get("/api/v1/blueprints")).json
        assert [item["name"] for item in listed["items"]] == ["asks", "script"]
        told = (await house.get("/api/v1/blueprints/script")).json
        states = {state["name"]: state for state in told["states"]}
        assert (told["start"], states["start"]["targets"]) == ("start", ["done", "start"])
        assert "support.py:" in states["start"]["handlers"][0]
        drawn = await house.get("/api/v1/blueprints/script/graph")
        assert drawn.headers["Content-Type"].startswith("text/vnd.graphviz")
        assert drawn.body.startswith(b"digraph")
        unknown = await house.get("/api/v1/blueprints/nope/graph")
        assert (unknown.status, unknown.code) == (404, "blueprint_not_found")
        odd = await house.get("/api/v1/blueprints/script/graph?format=gif")
        assert (odd.status, odd.code) == (400, "bad_parameter")

    run(body, one_task(), asks())


def test_a_picture_without_graphviz_is_not_implemented_and_the_text_still_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")

    async def body(house: House) -> None:
        for format in ("svg", "png"):
            answer = await house.get(f"/api/v1/blueprints/script/graph?format={format}")
            assert (answer.status, answer.code) == (501, "graphviz_missing")
        assert (await house.get("/api/v1/blueprints/script/graph?format=dot")).status == 200

    run(body, one_task())


def test_a_picture_is_drawn_where_graphviz_is(require: Callable[[str], str]) -> None:
    require("dot")

    async def body(house: House) -> None:
        svg = await house.get("/api/v1/blueprints/script/graph?format=svg")
        assert (svg.status, svg.headers["Content-Type"]) == (200, "image/svg+xml")
        png = await house.get("/api/v1/blueprints/script/graph?format=png")
        assert png.body.startswith(b"\x89PNG")

    run(body, one_task())


def test_workers_are_listed_and_drained_by_operators_alone() -> None:
    async def body(house: House) -> None:
        job = await house.submit("script", {"sleep": 60})
        (seen,) = (await house.get("/api/v1/workers")).json["items"]
        assert (seen["id"], seen["skills"], seen["running"], seen["holding"]) == ("hands", ["work"], 1, [])
        held = (await house.get("/api/v1/workers/hands", token="t-ops")).json["holding"]
        assert held[0].startswith(job["id"])
        refused = await house.post("/api/v1/workers/hands/drain")
        assert (refused.status, refused.code) == (403, "operators_only")
        drained = await house.post("/api/v1/workers/hands/drain", token="t-ops")
        assert drained.json["state"] == "draining"
        waits = await house.submit("script")
        assert waits["status"] == "waiting_for_worker"
        back = await house.post("/api/v1/workers/hands/drain", {"on": False}, token="t-ops")
        assert back.json["state"] in ("ready", "busy")  # the waiting job may be its already
        assert (await house.get(f"/api/v1/jobs/{waits['id']}?wait=5")).json["status"] == "finished"
        unknown = await house.get("/api/v1/workers/nobody")
        assert (unknown.status, unknown.code) == (404, "worker_not_found")

    run(body, one_task(), workers=[worker(concurrency=2)])


def test_queues_tell_what_waits_what_runs_and_since_when() -> None:
    async def body(house: House) -> None:
        for _ in range(3):
            await house.submit("script", {"sleep": 60})
        await house.submit("script", {"sleep": 60}, token="t-bob")
        await asyncio.sleep(0.05)
        (queue,) = (await house.get("/api/v1/queues", token="t-ops")).json["items"]
        assert (queue["name"], queue["waiting"], queue["running"], queue["workers"]) == ("work", 3, 1, 1)
        assert 0 < queue["oldest"] < 5
        (mine,) = (await house.get("/api/v1/queues", token="t-bob")).json["items"]
        assert (mine["waiting"], mine["running"]) == (1, 0)
        glance = (await house.get("/api/v1/dashboard", token="t-ops")).json
        assert glance == {"workers": {"total": 1, "busy": 1}, "tasks": {"waiting": 3, "running": 1}}

    run(body, one_task(), workers=[worker(concurrency=1)])


def test_a_worker_of_any_queue_is_counted_at_each_that_it_can_serve() -> None:
    async def body(house: House) -> None:
        for _ in range(2):
            await house.submit("script", {"sleep": 60})
        await asyncio.sleep(0.05)
        queues = (await house.get("/api/v1/queues", token="t-ops")).json["items"]
        assert {one["name"]: (one["waiting"], one["workers"]) for one in queues} == {
            "gpu": (1, 1),
            "work": (0, 1),
        }

    run(body, one_task(queue="gpu"), workers=[worker(concurrency=1)])


async def test_the_api_can_be_mounted_below_a_prefix_of_another_application() -> None:
    config = Config(instance_id="inner", client_token="t", worker_token="w")
    director = OrchestratorEngine("memory", config)
    director.register_blueprint(by_endpoint("v2"))
    assert director.app[STAGE].config is config
    outer = web.Application()
    outer.add_subapp("/regista", director.app)
    runner = web.AppRunner(outer, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with ClientSession(f"http://{host}:{port}", headers={"X-Client-Token": "t"}) as session:
            await _use_mounted(session)
    finally:
        await runner.cleanup()


async def _use_mounted(session: ClientSession) -> None:
    async with session.post("/regista/api/v1/jobs", json={"blueprint": "greet"}) as created:
        assert created.status == 202
        place = created.headers["Location"]
    async with session.get(place) as shown:
        assert (await shown.json())["blueprint"] == "greet"
    async with session.post("/regista/api/v2/jobs/greet", json={}) as created:
        assert created.status == 202
    async with session.get("/regista/api/v1/jobs", headers={"X-Client-Token": ""}) as refused:
        assert refused.status == 401
    async with session.get("/regista/api/nothing") as nothing:
        assert nothing.status == 404
    async with session.get("/regista/api/openapi.json") as document:
        assert document.status == 200
    async with session.get("/api/v1/jobs") as outside:
        assert outside.status == 404
