"""A trace that comes in goes on to the worker, whoever that is and whether or not anybody counts here."""

import subprocess
import sys
from pathlib import Path

import aiohttp

from regista.trace_context import span_id_of
from tests.acceptance.any_store import redis_server, storage  # noqa: F401  # fixtures
from tests.acceptance.house import house, raw

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
HEADERS = {"X-Client-Token": "a-client-token", "traceparent": PARENT, "tracestate": "vendor=1"}


async def test_a_stock_worker_gets_the_trace_of_the_request_that_asked_for_the_job(storage: str) -> None:  # noqa: F811
    async with (
        house(storage, otel_disabled=True) as here,
        raw(here) as worker,
        aiohttp.ClientSession() as http,
    ):
        await worker.register()
        wish = {"blueprint": "play", "input": {"skill": "echo", "params": {}}}
        async with http.post(f"{here.site.url}/api/v1/jobs", json=wish, headers=HEADERS) as answer:
            assert answer.status == 202
        task = await worker.poll()

        told = task["tracing_context"]
        assert told == {
            "traceparent": f"00-{TRACE}-{span_id_of(task['task_id'])}-01",
            "tracestate": "vendor=1",
        }
        assert (await worker.finish(task))["status"] == "accepted"


async def test_a_job_that_nobody_traces_has_no_trace() -> None:
    async with house() as here, raw(here) as worker, aiohttp.ClientSession() as http:
        await worker.register()
        headers = {"X-Client-Token": "a-client-token", "traceparent": "nonsense"}
        wish = {"blueprint": "play", "input": {"skill": "echo", "params": {}}}
        async with http.post(f"{here.site.url}/api/v1/jobs", json=wish, headers=headers) as answer:
            assert answer.status == 202

        assert (await worker.poll())["tracing_context"] == {}


#: Nothing of OpenTelemetry can be imported, as where the extra is not installed.
WITHOUT = """
import asyncio, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

import aiohttp
from regista import OrchestratorEngine, StateMachineBlueprint, Worker
from regista.config import Config
from regista.errors import ConfigError

blueprint, worker = StateMachineBlueprint("greet"), Worker("hands")

@blueprint.handler_for("start", is_start=True)
def start(context, actions):
    actions.dispatch_task("work", {}, transitions={"success": "done"})

@blueprint.handler_for("done", is_end=True)
def done(context, actions):
    actions.set_result("well")

@worker.task("work")
async def work(params):
    pass

async def main():
    director = OrchestratorEngine("memory", Config(client_token="t", worker_token="t"))
    director.register_blueprint(blueprint)
    director.add_worker(worker)
    site = await director.serve(port=0)
    async with aiohttp.ClientSession() as http:
        parent = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}
        job = await director.run_job("greet", tracing_context=parent)
        async with http.get(f"{site.url}/_public/metrics") as answer:
            print(job.result, answer.status, "orchestrator_jobs_total" in await answer.text())
        async with http.get(f"{site.url}/_public/status") as answer:
            print((await answer.json())["state"])
    await director.stop()
    try:
        OrchestratorEngine("memory", Config(otlp_endpoint="http://127.0.0.1:4318"))
    except ConfigError as error:
        print(error)
    print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))

asyncio.run(main())
"""


def test_without_the_extra_everything_else_works_and_what_is_missing_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=9,
    )

    assert done.returncode == 0, done.stderr
    metrics, state, refusal, loaded = done.stdout.splitlines()
    assert metrics == "well 200 True"
    assert state == "ready"
    assert "pip install 'regista[telemetry]'" in refusal
    assert loaded == "[]"
