"""An orchestrator on a port, and workers that a test moves by hand, request by request."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from regista import OrchestratorEngine, RetryPolicy, StateMachineBlueprint
from regista.blueprint import ActionFactory, JobContext
from regista.config import Config
from regista.server import HttpServer
from tests.ports import free_port
from tests.support import script

TOKEN = "a-worker-token"

#: Members of a registration, as the older stock SDK sends them.
OLD = {
    "worker_type": "stock",
    "supported_skills": ["echo"],
    "resources": {"max_concurrent_tasks": 4, "cpu_cores": 2, "gpu_info": None},
    "installed_software": {"python": "3.11"},
    "installed_models": [],
    "capabilities": {
        "hostname": "here",
        "ip_address": "127.0.0.1",
        "cost_per_skill": {},
        "s3_config_hash": None,
        "extra": {"websockets": False},
    },
}


def play() -> StateMachineBlueprint:
    """One task of the skill that the input names."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        wish = context.initial_data
        actions.dispatch_task(
            wish["skill"],
            wish.get("params", {}),
            transitions={"success": "done", "partial": "half"},
            retry=RetryPolicy(max_attempts=3, first_s=0.05),
        )

    return script(start, "done", "half", name="play")


def crowd() -> StateMachineBlueprint:
    """As many branches of "echo" as the input says, and how many came back."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        for number in range(context.initial_data["count"]):
            actions.dispatch_task("echo", {"n": number}, transitions={"success": "join"})

    def join(context: JobContext, actions: ActionFactory) -> None:
        results = context.aggregation_results.values()
        context.state_history["echoes"] = [result["data"]["echo"]["n"] for result in results]
        actions.transition_to("done")

    return script(start, "done", name="crowd", aggregators=["join"], join=join)


class House:
    """An orchestrator on a port, and its worker."""

    def __init__(self, director: OrchestratorEngine, site: HttpServer) -> None:
        self.director = director
        self.site = site

    async def submit(self, skill: str, **params: Any) -> str:
        job = await self.director.submit("play", {"skill": skill, "params": params})
        return job.id

    async def run(self, skill: str, timeout_s: float = 8.0, **params: Any) -> Any:
        """The job of one task, once it has settled."""
        return await self.director.wait(await self.submit(skill, **params), timeout_s)

    async def task(self, job_id: str) -> Any:
        """The job's task, as it is stored."""
        return (await self.director.storage.tasks_of(job_id))[0]

    async def joined(self, worker_id: str = "stock-1") -> None:
        await until(lambda: self.director.dispatcher.find(worker_id) is not None)

    async def taken(self, job_id: str) -> None:
        """Some worker has said that it does the job's task."""

        async def begun() -> bool:
            await self.director.workers.write_signs()
            tasks = await self.director.storage.tasks_of(job_id)
            return bool(tasks) and tasks[0].state == "started"

        await until(begun)


@asynccontextmanager
async def house(storage: str = "memory", port: int = 0, **settings: Any) -> AsyncIterator[House]:
    """An orchestrator that serves, with quick beats so that nobody waits for long."""
    config = Config(
        **{"worker_token": TOKEN, "client_token": "a-client-token", "instance_id": "house", **settings}
    )
    director = OrchestratorEngine(storage, config)
    for blueprint in (play(), crowd()):
        director.register_blueprint(blueprint)
    site = await director.serve("127.0.0.1", port or free_port())  # nobody takes it while it is away
    try:
        yield House(director, site)
    finally:
        await director.stop(0.0)


async def until(condition: Callable[[], bool | Awaitable[bool]], timeout_s: float = 8.0) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(timeout_s):
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(0.02)


class Raw:
    """A worker that says what the test tells it to, and nothing by itself."""

    def __init__(self, http: aiohttp.ClientSession, worker_id: str) -> None:
        self.http = http
        self.id = worker_id

    async def register(self, **members: Any) -> Any:
        body = {"worker_id": self.id, **OLD, **members}
        return await self.ask("POST", "/_worker/workers/register", body)

    async def beat(self, *running: str, **members: Any) -> Any:
        body = {
            "worker_id": self.id,
            "status": "idle",
            "load": float(len(running)),
            "current_tasks": list(running),
            "supported_skills": ["echo"],
            "hot_cache": [],
            "skill_dependencies": None,
            "hot_skills": None,
            **members,
        }
        return await self.ask("PATCH", f"/_worker/workers/{self.id}", body)

    async def poll(self, timeout_s: float = 2.0, **query: Any) -> Any:
        """The task, or None."""
        params = {"timeout": str(timeout_s), **{key: str(value) for key, value in query.items()}}
        async with self.http.get(f"/_worker/workers/{self.id}/tasks/next", params=params) as answer:
            assert answer.status in (200, 204), await answer.text()
            return await answer.json() if answer.status == 200 else None

    async def finish(self, task: dict[str, Any], data: Any = None, **members: Any) -> Any:
        body = {
            "job_id": task["job_id"],
            "task_id": task["task_id"],
            "worker_id": self.id,
            "status": "success",
            "data": data,
            **members,
        }
        return await self.ask("POST", "/_worker/tasks/result", body)

    async def ask(self, method: str, path: str, body: Any) -> Any:
        async with self.http.request(method, path, json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()


@asynccontextmanager
async def raw(here: House, worker_id: str = "raw", **headers: str) -> AsyncIterator[Raw]:
    """A worker with a connection, and the right token."""
    said = {"X-Worker-Token": TOKEN, **headers}
    async with aiohttp.ClientSession(here.site.url, headers=said) as http:
        yield Raw(http, worker_id)
