"""A real orchestrator on a real port, for the tests of the client API."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from regista import ClientConfig, Config, OrchestratorEngine, StateMachineBlueprint, Worker
from regista.storage.base import StorageBackend

#: Two clients that must not see each other, and an operator who sees both.
TOKENS = {"t-ada": "ada", "t-bob": "bob", "t-ops": "ops"}
CLIENTS = {"ops": ClientConfig(name="ops", operator=True)}


class Answer(msgspec.Struct):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The code of a problem, after a look at its shape."""
        assert self.headers["Content-Type"].startswith("application/problem+json"), self.body
        problem = self.json
        assert problem["status"] == self.status
        assert problem["detail"] == problem["error"]
        code: str = problem["code"]
        return code


class House:
    """The orchestrator, and a client before its door."""

    def __init__(self, director: OrchestratorEngine, url: str, session: aiohttp.ClientSession) -> None:
        self.director = director
        self.url = url
        self.session = session

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        token: str | None = "t-ada",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = dict(headers or {}) | ({} if token is None else {"X-Client-Token": token})
        data = raw if raw is not None else None if body is None else msgspec.json.encode(body)
        url = URL(self.url + path, encoded=True)
        async with self.session.request(method, url, data=data, headers=sent) as answer:
            return Answer(answer.status, dict(answer.headers), await answer.read())

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return await self.call("POST", path, body, **options)

    async def submit(self, blueprint: str, input: dict[str, Any] | None = None, **more: Any) -> Any:
        """A job, as its object."""
        token = more.pop("token", "t-ada")
        answer = await self.post(
            "/api/v1/jobs", {"blueprint": blueprint, "input": input or {}, **more}, token=token
        )
        assert answer.status == 202, answer.body
        return answer.json


@asynccontextmanager
async def serving(
    *blueprints: StateMachineBlueprint,
    workers: Iterable[Worker] = (),
    storage: StorageBackend | str | None = None,
    **settings: Any,
) -> AsyncIterator[House]:
    """An orchestrator that plays these, on a free port, and gone afterwards."""
    config = Config(instance_id="served", worker_token="t-worker", **settings)
    director = OrchestratorEngine(storage or "memory", config, clients=CLIENTS, client_tokens=TOKENS)
    for blueprint in blueprints:
        director.register_blueprint(blueprint)
    for worker in workers:
        director.add_worker(worker)
    site = await director.serve(port=0)
    try:
        async with aiohttp.ClientSession() as session:
            yield House(director, site.url, session)
    finally:
        await director.stop(0.0)
