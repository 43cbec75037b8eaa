"""A value that looks like a reference of ours is plain data, whoever sends it, and nobody else's trouble."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from regista import JobContext, StateMachineBlueprint, Worker
from regista.blueprint import ActionFactory
from regista.payloads.base import MARK
from tests.acceptance.serving import House, serving

FORGED = [
    {"broken": 5},
    {"broken": ["a", "b", True]},
    {"plain": 5},
    {"keys": {}},
    {"whole": {"path": "a", "sha256": "b", "size": 1}},
    1,
    None,
]


def echoing() -> StateMachineBlueprint:
    """Its input goes through params and a result into its data, and an approval's data too."""
    blueprint = StateMachineBlueprint("echoing")

    @blueprint.handler_for("start", is_start=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        for _ in range(2):
            actions.dispatch_task("echo", context.initial_data, transitions={"success": "join"})

    @blueprint.aggregator_for("join")
    def join(context: JobContext, actions: ActionFactory) -> None:
        first, *_ = context.aggregation_results.values()
        context.state_history["echoed"] = first["data"]
        actions.await_human_approval("go on?", {"approved": "done"})

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result({"echoed": context.state_history["echoed"], MARK: context.state_history[MARK]})

    return blueprint


def echoes() -> Worker:
    worker = Worker("echoes", concurrency=20)

    @worker.task("echo")
    async def echo(params: dict[str, Any]) -> dict[str, Any]:
        return dict(params)

    return worker


async def until(house: House, job_id: str, status: str) -> Any:
    async with asyncio.timeout(8):
        while (job := (await house.get(f"/api/v1/jobs/{job_id}")).json)["status"] != status:
            assert job["status"] not in ("failed", "quarantined"), job
            await asyncio.sleep(0.02)
    return job


@pytest.mark.parametrize("payloads", [False, True])
async def test_a_forged_reference_is_plain_data_at_every_entrance(payloads: bool, tmp_path: Path) -> None:
    more = {"payloads": f"file:{tmp_path}/p"} if payloads else {}
    async with serving(echoing(), workers=[echoes()], storage=f"sqlite:{tmp_path}/x.db", **more) as house:
        sent = [(mark, await house.submit("echoing", {MARK: mark})) for mark in FORGED]
        for mark, job in sent:
            await until(house, job["id"], "waiting_for_human")
            yes = {"decision": "approved", "data": {MARK: mark}}
            assert (await house.post(f"/api/v1/jobs/{job['id']}/approval", yes)).status == 200
        for mark, job in sent:
            ended = await until(house, job["id"], "finished")
            assert ended["input"] == {MARK: mark}
            assert ended["data"][MARK] == mark
            assert ended["result"] == {"echoed": {MARK: mark}, MARK: mark}


async def test_a_reference_into_the_jobs_own_place_leads_nowhere_when_a_client_sends_it(
    tmp_path: Path,
) -> None:
    async with serving(
        echoing(), workers=[echoes()], storage=f"sqlite:{tmp_path}/x.db", payloads=f"file:{tmp_path}/p"
    ) as house:
        jobs = [await house.submit("echoing", {"n": number}) for number in range(3)]
        for job, digest in zip(jobs, ("../x", "a" * 64, "b\x00"), strict=True):
            await until(house, job["id"], "waiting_for_human")
            ref = {"path": f"records/{job['id']}/{digest}", "sha256": digest, "size": 5}
            yes = {"decision": "approved", "data": {MARK: {"whole": ref}}}
            assert (await house.post(f"/api/v1/jobs/{job['id']}/approval", yes)).status == 200
            ended = await until(house, job["id"], "finished")
            assert ended["result"][MARK] == {"whole": ref}


async def test_a_reference_of_an_earlier_payload_store_is_not_taken_for_a_value(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    async with serving(echoing(), storage=storage, payloads=f"file:{tmp_path}/p") as house:
        job = await house.submit("echoing", {"large": "x" * 400_000})
    async with serving(echoing(), workers=[echoes()], storage=storage) as house:
        stored = (await house.get(f"/api/v1/jobs/{job['id']}")).json
        assert "large" not in stored["input"]
        async with asyncio.timeout(8):
            while stored["status"] != "quarantined":
                await asyncio.sleep(0.05)
                stored = (await house.get(f"/api/v1/jobs/{job['id']}")).json
        assert stored["error"]["code"] == "payloads_disabled"
