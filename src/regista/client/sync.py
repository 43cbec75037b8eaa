"""SyncClient: the same calls, blocking, for scripts and notebooks."""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from ..config import Connection
from ..errors import RegistaError
from ..history.timeline import Timeline
from ..model import Event
from ..schemas.jobs import JobObject, Progress
from .client import Client
from .files import SyncFiles
from .schedules import SyncSchedules
from .transport import FIRST_CONTACT_S

T = TypeVar("T")


class SyncClient:
    """`Client` with blocking calls. Works wherever it is called from, a running event loop included.

    ```python
    with SyncClient() as client:
        print(client.run("greet", {"name": "Ada"}).result)
    ```

    It has an event loop in a thread of its own, and may be used from several threads. One that nobody
    closes closes itself when it is forgotten, or when the program ends.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        connection: Connection | None = None,
        first_contact_s: float = FIRST_CONTACT_S,
        on_wait: Callable[[str, float], None] | None = None,
    ) -> None:
        self._client = Client(
            url, token, connection=connection, first_contact_s=first_contact_s, on_wait=on_wait
        )
        self.url = self._client.url
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(self._loop,), name="regista-client", daemon=True)
        thread.start()
        self._put_away = weakref.finalize(self, _put_away, self._client, self._loop, thread)

    def close(self) -> None:
        """Give the connections and the thread back. Twice is fine."""
        self._put_away()

    def __enter__(self) -> "SyncClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, blueprint: str, input: Mapping[str, Any] | None = None, **options: Any) -> JobObject:
        """See `Client.submit`."""
        return self._call(self._client.submit(blueprint, input, **options))

    def submit_many(self, wishes: Sequence[Mapping[str, Any]]) -> list[JobObject | RegistaError]:
        """See `Client.submit_many`."""
        return self._call(self._client.submit_many(wishes))

    def run(
        self,
        blueprint: str,
        input: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        **options: Any,
    ) -> JobObject:
        """See `Client.run`."""
        return self._call(self._client.run(blueprint, input, timeout_s, **options))

    def fork(self, job_id: str, input: Mapping[str, Any] | None = None) -> JobObject:
        """See `Client.fork`."""
        return self._call(self._client.fork(job_id, input))

    def get(self, job_id: str) -> JobObject:
        """See `Client.get`."""
        return self._call(self._client.get(job_id))

    def wait(self, job_id: str, timeout_s: float | None = None) -> JobObject:
        """See `Client.wait`."""
        return self._call(self._client.wait(job_id, timeout_s))

    def wait_many(
        self, job_ids: Sequence[str], timeout_s: float | None = None, attempts: bool = False
    ) -> Iterator[JobObject]:
        """See `Client.wait_many`."""
        return self._iterate(self._client.wait_many(job_ids, timeout_s, attempts))

    def jobs(
        self,
        *,
        query: str | None = None,
        status: str | None = None,
        blueprint: str | None = None,
        page: int = 100,
    ) -> Iterator[JobObject]:
        """See `Client.jobs`."""
        return self._iterate(self._client.jobs(query=query, status=status, blueprint=blueprint, page=page))

    def count(
        self,
        query: str | None = None,
        by: str | None = None,
        *,
        status: str | None = None,
        blueprint: str | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """See `Client.count`."""
        return self._call(self._client.count(query, by, status=status, blueprint=blueprint, limit=limit))

    def export(
        self, query: str | None = None, *, status: str | None = None, blueprint: str | None = None
    ) -> Iterator[bytes]:
        """See `Client.export`."""
        return self._iterate(self._client.export(query, status=status, blueprint=blueprint))

    def history(self, job_id: str) -> list[Event]:
        """See `Client.history`."""
        return self._call(self._client.history(job_id))

    def events(self, job_id: str | None = None, after: str = "") -> Iterator[Event | Progress]:
        """See `Client.events`."""
        return self._iterate(self._client.events(job_id, after))

    @property
    def schedules(self) -> SyncSchedules:
        """See `Client.schedules`. Made when it is asked for: one that is kept would keep this client from closing."""
        return SyncSchedules(self._client.schedules, self._call)

    @property
    def files(self) -> SyncFiles:
        """See `Client.files`."""
        return SyncFiles(self._client.files, self._call)

    def timeline(self, job_id: str) -> Timeline:
        """See `Client.timeline`."""
        return self._call(self._client.timeline(job_id))

    def explain(self, job_id: str) -> dict[str, Any]:
        """See `Client.explain`."""
        return self._call(self._client.explain(job_id))

    def cancel(self, job_id: str, reason: str = "") -> JobObject:
        """See `Client.cancel`."""
        return self._call(self._client.cancel(job_id, reason))

    def approve(
        self,
        job_id: str,
        decision: str = "approve",
        comment: str = "",
        data: Mapping[str, Any] | None = None,
    ) -> JobObject:
        """See `Client.approve`."""
        return self._call(self._client.approve(job_id, decision, comment, data))

    def release(self, job_id: str, data: Mapping[str, Any] | None = None) -> JobObject:
        """See `Client.release`."""
        return self._call(self._client.release(job_id, data))

    def retry(self, job_id: str, data: Mapping[str, Any] | None = None) -> JobObject:
        """See `Client.retry`."""
        return self._call(self._client.retry(job_id, data))

    def fail(self, job_id: str, reason: str = "") -> JobObject:
        """See `Client.fail`."""
        return self._call(self._client.fail(job_id, reason))

    def blueprints(self) -> list[dict[str, Any]]:
        """See `Client.blueprints`."""
        return self._call(self._client.blueprints())

    def graph(self, blueprint: str, format: str = "dot") -> bytes:
        """See `Client.graph`."""
        return self._call(self._client.graph(blueprint, format))

    def workers(self) -> list[dict[str, Any]]:
        """See `Client.workers`."""
        return self._call(self._client.workers())

    def drain(self, worker_id: str) -> dict[str, Any]:
        """See `Client.drain`."""
        return self._call(self._client.drain(worker_id))

    def undrain(self, worker_id: str) -> dict[str, Any]:
        """See `Client.undrain`."""
        return self._call(self._client.undrain(worker_id))

    def one_time_password(self, worker_id: str | None = None) -> dict[str, Any]:
        """See `Client.one_time_password`."""
        return self._call(self._client.one_time_password(worker_id))

    def revoke(self, worker_id: str) -> dict[str, Any]:
        """See `Client.revoke`."""
        return self._call(self._client.revoke(worker_id))

    def queues(self) -> list[dict[str, Any]]:
        """See `Client.queues`."""
        return self._call(self._client.queues())

    def webhooks(self, state: str = "dead") -> list[dict[str, Any]]:
        """See `Client.webhooks`."""
        return self._call(self._client.webhooks(state))

    def redeliver(self, delivery_id: str) -> dict[str, Any]:
        """See `Client.redeliver`."""
        return self._call(self._client.redeliver(delivery_id))

    def discard(self, delivery_id: str) -> dict[str, Any]:
        """See `Client.discard`."""
        return self._call(self._client.discard(delivery_id))

    def webhook_secret(self) -> dict[str, Any]:
        """See `Client.webhook_secret`."""
        return self._call(self._client.webhook_secret())

    def audit(
        self, *, actor: str = "", action: str = "", target: str = "", page: int = 100
    ) -> Iterator[dict[str, Any]]:
        """See `Client.audit`."""
        return self._iterate(self._client.audit(actor=actor, action=action, target=target, page=page))

    def me(self) -> dict[str, Any]:
        """See `Client.me`."""
        return self._call(self._client.me())

    def upkeep(self) -> dict[str, Any]:
        """See `Client.upkeep`."""
        return self._call(self._client.upkeep())

    def status(self) -> dict[str, Any]:
        """See `Client.status`."""
        return self._call(self._client.status())

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it over there, and wait here. An interrupt here stops it there."""
        if self._loop.is_closed():
            coroutine.close()
            raise RuntimeError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """What the source yields, one step at a time; left early, it is closed over there."""
        try:
            while True:
                try:
                    yield self._call(_next(source))
                except StopAsyncIteration:
                    return
        finally:
            if not self._loop.is_closed():
                self._call(_closed(source))


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())  # streams that were left in the middle
    finally:
        loop.close()


def _put_away(client: Client, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    closing = asyncio.run_coroutine_threadsafe(client.close(), loop)
    closing.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
    if threading.current_thread() is not thread:  # it is, when the collector finds us while the loop runs
        thread.join()


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


async def _closed(source: AsyncIterator[Any]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()
