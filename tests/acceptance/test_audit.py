"""Who did what: on the job's own events, in the list for operators, and in the log; never what was sent."""

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from regista import Config, OrchestratorEngine
from regista.model.audit import audit_record
from tests.acceptance.any_store import history, redis_server, storage
from tests.acceptance.serving import House, serving
from tests.acceptance.test_jobs import asks, breaks, worker
from tests.support import one_task
from tests.webhook_kit import in_loop

__all__ = ["history", "redis_server", "storage"]

SECRET = "hunter2-is-not-told"


async def records(house: House, query: str = "", token: str = "t-ops") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await house.get(f"/api/v1/audit{query}", token=token)).json["items"]
    return items


async def actors(house: House, job_id: str) -> dict[str, str]:
    """Type of event → who caused it, for those that somebody caused."""
    events = (await house.get(f"/api/v1/jobs/{job_id}/history", token="t-ops")).json["items"]
    return {event["type"]: event["actor"] for event in events if "actor" in event}


def test_what_somebody_does_to_a_job_names_who_it_was(storage: str, history: str) -> None:
    @in_loop
    async def main() -> None:
        async with serving(asks(), breaks(), storage=storage, history_database_uri=history) as house:
            body = {"data": {"password": SECRET}}
            asked = (await house.submit("asks", {"password": SECRET}))["id"]
            said = {"decision": "yes", "comment": "fine by me", "data": {"password": SECRET}}
            assert (await house.post(f"/api/v1/jobs/{asked}/approval", said, token="t-ops")).status == 200
            stopped = (await house.submit("asks"))["id"]
            assert (await house.post(f"/api/v1/jobs/{stopped}/cancel", {"reason": SECRET})).status == 200
            sick = (await house.submit("breaks"))["id"]
            await house.get(f"/api/v1/jobs/{sick}?wait=5")
            assert (await house.post(f"/api/v1/jobs/{sick}/release", body)).status == 200
            await house.get(f"/api/v1/jobs/{sick}?wait=5")
            assert (await house.post(f"/api/v1/jobs/{sick}/fail", token="t-ops")).status == 200

            assert await actors(house, asked) == {
                "job_created": "client:ada",
                "approval_given": "operator:ops",
            }
            events = (await house.get(f"/api/v1/jobs/{asked}/history")).json["items"]
            (given,) = [event for event in events if event["type"] == "approval_given"]
            assert given["message"] == "fine by me"
            assert await actors(house, stopped) == {
                "job_created": "client:ada",
                "cancel_requested": "client:ada",
                "job_finished": "client:ada",
            }
            assert await actors(house, sick) == {
                "job_created": "client:ada",
                "job_released": "client:ada",
                "job_finished": "operator:ops",
            }
            told = await records(house)
            assert [(one["actor"], one["action"], one["target"]) for one in told] == [
                ("operator:ops", "job.fail", sick),
                ("client:ada", "job.release", sick),
                ("client:ada", "job.cancel", stopped),
                ("operator:ops", "job.approve", asked),
            ]
            assert told[-1]["facts"] == {"decision": "yes"}
            assert {one["address"] for one in told} == {"127.0.0.1"}
            assert {one["instance"] for one in told} == {"served"}
            assert SECRET not in str(told)
            # Said again, decided before: nothing was done, so nothing is told.
            assert (await house.post(f"/api/v1/jobs/{asked}/approval", said, token="t-ops")).status == 200
            assert len(await records(house)) == 4

    main()


def test_a_deed_that_was_refused_is_not_told() -> None:
    @in_loop
    async def main() -> None:
        async with serving(asks()) as house:
            job = (await house.submit("asks"))["id"]
            assert (await house.post(f"/api/v1/jobs/{job}/cancel", token="t-bob")).status == 404
            assert (await house.post(f"/api/v1/jobs/{job}/fail")).status == 409
            assert (await house.post("/api/v1/workers/nobody/drain", token="t-ops")).status == 404
            assert await records(house) == []

    main()


def test_the_list_is_for_operators_newest_first_in_pages_and_can_be_narrowed() -> None:
    @in_loop
    async def main() -> None:
        async with serving(asks(), one_task(), workers=[worker()]) as house:
            jobs = [(await house.submit("asks"))["id"] for _ in range(5)]
            for job in jobs:
                await house.post(f"/api/v1/jobs/{job}/cancel")
            (known,) = (await house.get("/api/v1/workers")).json["items"]
            for on in (True, False):
                path = f"/api/v1/workers/{known['id']}/drain"
                assert (await house.post(path, {"on": on}, token="t-ops")).status == 200

            seen: list[str] = []
            path = "/api/v1/audit?limit=2&action=job.cancel"
            while path:
                page = (await house.get(path, token="t-ops")).json
                seen += [one["target"] for one in page["items"]]
                more = page["next"]
                path = f"/api/v1/audit?limit=2&action=job.cancel&next={more}" if more else ""
            assert seen == jobs[::-1]
            assert [one["action"] for one in await records(house, "?actor=operator:ops")] == [
                "worker.undrain", "worker.drain",
            ]  # fmt: skip
            assert [one["target"] for one in await records(house, f"?target={jobs[1]}")] == [jobs[1]]
            refused = await house.get("/api/v1/audit")
            assert (refused.status, refused.code) == (403, "operators_only")

    main()


def test_every_deed_is_a_line_in_the_log_that_programs_can_read(caplog: pytest.LogCaptureFixture) -> None:
    @in_loop
    async def main() -> None:
        async with serving(asks()) as house:
            job = (await house.submit("asks", {"password": SECRET}))["id"]
            await house.post(f"/api/v1/jobs/{job}/cancel", {"reason": SECRET})

    with caplog.at_level(logging.DEBUG, "regista.audit"):
        main()
    lines = [vars(record) for record in caplog.records if record.name == "regista.audit"]
    assert [(line["levelname"], line["actor"], line["action"], line["address"]) for line in lines] == [
        ("DEBUG", "client:ada", "job.submit", "127.0.0.1"),
        ("INFO", "client:ada", "job.cancel", "127.0.0.1"),
    ]
    assert SECRET not in str(lines)


async def test_what_a_client_does_and_then_disconnects_is_recorded_all_the_same() -> None:
    async with serving(asks()) as house:
        host, port = house.url.removeprefix("http://").split(":")
        names = [f"beat-{number}" for number in range(20)]
        for name in names:
            body = f'{{"name": "{name}", "blueprint": "asks", "interval_seconds": 3600}}'
            head = f"POST /api/v1/schedules HTTP/1.1\r\nHost: {host}\r\nX-Client-Token: t-ops\r\n"
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            writer.close()
        made: list[str] = []
        async with asyncio.timeout(5):
            while len(made) < len(names):
                await asyncio.sleep(0.05)
                listed = (await house.get("/api/v1/schedules", token="t-ops")).json["items"]
                made = sorted(one["name"] for one in listed)
        told = await records(house, "?action=schedule.create")
        assert sorted(one["target"] for one in told) == made


def test_reading_the_files_anew_is_told_as_the_systems_deed(tmp_path: Path) -> None:
    @in_loop
    async def main() -> None:
        file = tmp_path / "clients.toml"
        file.write_text('[ops]\ntoken = "t-ops"\noperator = true\n')
        config = Config(instance_id="one", worker_token="t-w", clients_config_path=str(file))
        director = OrchestratorEngine("memory", config)
        await director.serve(port=0)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, director.reload)
        try:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.1)
            file.write_text("[ops]\ntoken = 7\n")
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.1)
            told = [audit_record(item) for item in await director.storage.records("audit")]
            assert [(one.actor, one.action, one.target, one.facts["outcome"]) for one in told] == [
                ("system", "config.reload", str(file), "refused"),
                ("system", "config.reload", str(file), "done"),
            ]
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            await director.stop(0.0)

    main()
