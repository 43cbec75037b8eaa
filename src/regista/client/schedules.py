"""Schedules as typed calls: what is started when. For operators."""

from typing import Any
from urllib.parse import quote

from .bodies import new_key
from .transport import Transport, decode

_PATH = "/api/v1/schedules"
Document = dict[str, Any]
Documents = list[Document]


class Schedules:
    """`client.schedules`. A name that nobody knows raises ScheduleNotFound."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self) -> Documents:
        """Every schedule, by name."""
        return await self._items(_PATH)

    async def get(self, name: str) -> Document:
        """A schedule, and what became of its last ticks."""
        return await self._ask("GET", _path(name))

    async def next(self, name: str, count: int = 10) -> Documents:
        """The next ticks: each as the calendar has it, and when it fires."""
        return await self._items(_path(name, "/next"), {"count": str(count)})

    async def create(self, /, name: str, **members: Any) -> Document:
        """Make a schedule; members are those of a table of `schedules.toml`. ScheduleExists where the name is taken."""
        return await self._ask("POST", _PATH, {"name": name, **members})

    async def pause(self, name: str, reason: str = "") -> Document:
        """Let nothing fire until `resume`."""
        return await self._ask("POST", _path(name, "/pause"), {"reason": reason})

    async def resume(self, name: str, reason: str = "") -> Document:
        """Let it fire again, from now on."""
        return await self._ask("POST", _path(name, "/resume"), {"reason": reason})

    async def trigger(self, name: str, idempotency_key: str | None = None) -> str:
        """Start a job of it now; returns its id. The same key is the same job."""
        body = {"idempotency_key": idempotency_key or new_key()}
        return str((await self._ask("POST", _path(name, "/trigger"), body))["job_id"])

    async def delete(self, name: str) -> None:
        """Forget a schedule that was made over the API; one of the file is ScheduleInFile."""
        await self._transport.call("POST", _path(name, "/delete"), {}, idempotent=False)

    async def _ask(self, method: str, path: str, body: object = None) -> Document:
        document: Document = decode(await self._transport.call(method, path, body), dict[str, Any])
        return document

    async def _items(self, path: str, params: dict[str, str] | None = None) -> Documents:
        return [item async for item in self._transport.pages(path, params or {}, dict[str, Any])]


def _path(name: str, below: str = "") -> str:
    return f"{_PATH}/{quote(name, safe='')}{below}"
