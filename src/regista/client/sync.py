"""SyncClient: the same calls, blocking, for scripts and notebooks."""

import asyncio
import functools
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ..config import Connection
from .client import Client
from .files import Files
from .schedules import Schedules
from .transport import FIRST_CONTACT_S

P = ParamSpec("P")
T = TypeVar("T")
TargetT = TypeVar("TargetT")
TargetT_co = TypeVar("TargetT_co", covariant=True)


class EventLoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="regista-client", daemon=True)
        self.thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there and wait for it here. An interrupt here cancels it there."""
        if self.loop.is_closed():
            coroutine.close()
            raise RuntimeError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """The items of the source, one call each. A source that is left early is closed."""
        try:
            while True:
                try:
                    yield self.call(_next(source))
                except StopAsyncIteration:
                    return
        finally:
            if not self.loop.is_closed():
                self.call(_close(source))

    def stop(self, client: Client) -> None:
        """Close the client, then end the loop and its thread."""
        closing = asyncio.run_coroutine_threadsafe(client.close(), self.loop)
        closing.add_done_callback(lambda _: self.loop.call_soon_threadsafe(self.loop.stop))
        if threading.current_thread() is not self.thread:  # it is if the collector runs there
            self.thread.join()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())  # streams that were left early
        finally:
            self.loop.close()


class Blocking(Protocol[TargetT_co]):
    """Has a target whose coroutines run in another thread."""

    @property
    def _target(self) -> TargetT_co: ...
    @property
    def _thread(self) -> EventLoopThread: ...


def blocking(
    method: Callable[Concatenate[TargetT, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[TargetT], P], T]:
    """The method with the same parameters, blocking."""

    def call(self: Blocking[TargetT], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(method(self._target, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def blocking_iterator(
    method: Callable[Concatenate[TargetT, P], AsyncIterator[T]],
) -> Callable[Concatenate[Blocking[TargetT], P], Iterator[T]]:
    """The method with the same parameters, as a plain iterator."""

    def iterate(self: Blocking[TargetT], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._thread.iterate(method(self._target, *args, **kwargs))

    functools.update_wrapper(iterate, method)
    return iterate


class SyncFiles:
    """`Files` with blocking calls."""

    def __init__(self, target: Files, thread: EventLoopThread) -> None:
        self._target = target
        self._thread = thread

    list = blocking(Files.list)
    upload_url = blocking(Files.upload_url)
    download_url = blocking(Files.download_url)
    upload = blocking(Files.upload)
    stream = blocking_iterator(Files.stream)
    read = blocking(Files.read)
    download = blocking(Files.download)
    value = blocking(Files.value)
    fetch_offloaded = blocking(Files.fetch_offloaded)
    result = blocking(Files.result)


class SyncSchedules:
    """`Schedules` with blocking calls."""

    def __init__(self, target: Schedules, thread: EventLoopThread) -> None:
        self._target = target
        self._thread = thread

    list = blocking(Schedules.list)
    get = blocking(Schedules.get)
    next = blocking(Schedules.next)
    create = blocking(Schedules.create)
    pause = blocking(Schedules.pause)
    resume = blocking(Schedules.resume)
    trigger = blocking(Schedules.trigger)
    delete = blocking(Schedules.delete)


class SyncClient:
    """`Client` with blocking calls. Works wherever it is called from, a running event loop included.

    ```python
    with SyncClient() as client:
        print(client.run("greet", {"name": "Ada"}).result)
    ```

    It has an event loop in a thread of its own, and may be used from several threads. It closes itself when it
    is garbage-collected, or when the program ends.
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
        self._target = Client(
            url, token, connection=connection, first_contact_s=first_contact_s, on_wait=on_wait
        )
        self.url = self._target.url
        self._thread = EventLoopThread()
        self._finalizer = weakref.finalize(self, self._thread.stop, self._target)

    def close(self) -> None:
        """Close the connections and the thread. Twice is fine."""
        self._finalizer()

    def __enter__(self) -> "SyncClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def server_time(self) -> str | None:
        """See `Client.server_time`."""
        return self._target.server_time

    # Made when they are needed: kept ones would hold references that keep this client from closing.
    @property
    def schedules(self) -> SyncSchedules:
        """See `Client.schedules`."""
        return SyncSchedules(self._target.schedules, self._thread)

    @property
    def files(self) -> SyncFiles:
        """See `Client.files`."""
        return SyncFiles(self._target.files, self._thread)

    submit = blocking(Client.submit)
    submit_many = blocking(Client.submit_many)
    run = blocking(Client.run)
    fork = blocking(Client.fork)
    get = blocking(Client.get)
    wait = blocking(Client.wait)
    wait_many = blocking_iterator(Client.wait_many)
    jobs = blocking_iterator(Client.jobs)
    count = blocking(Client.count)
    export = blocking_iterator(Client.export)
    history = blocking(Client.history)
    events = blocking_iterator(Client.events)
    timeline = blocking(Client.timeline)
    explain = blocking(Client.explain)
    cancel = blocking(Client.cancel)
    approve = blocking(Client.approve)
    release = blocking(Client.release)
    retry = blocking(Client.retry)
    fail = blocking(Client.fail)
    blueprints = blocking(Client.blueprints)
    graph = blocking(Client.graph)
    workers = blocking(Client.workers)
    drain = blocking(Client.drain)
    undrain = blocking(Client.undrain)
    one_time_password = blocking(Client.one_time_password)
    revoke = blocking(Client.revoke)
    queues = blocking(Client.queues)
    webhooks = blocking(Client.webhooks)
    redeliver = blocking(Client.redeliver)
    discard = blocking(Client.discard)
    webhook_secret = blocking(Client.webhook_secret)
    audit = blocking_iterator(Client.audit)
    me = blocking(Client.me)
    chores = blocking(Client.chores)
    status = blocking(Client.status)


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


async def _close(source: AsyncIterator[Any]) -> None:
    close: Callable[[], Awaitable[None]] | None = getattr(source, "aclose", None)
    if close is not None:
        await close()
