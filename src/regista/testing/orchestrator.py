"""TestOrchestrator: a whole orchestrator for a test, on a clock that can be skipped."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

from ..blueprint import Graph, StateMachineBlueprint
from ..clock import IdGenerator
from ..config import Config
from ..history.base import HistoryStorage
from ..history.memory import MemoryHistory
from ..model import ClientConfig, Event, EventType, Job
from ..orchestrator import OrchestratorEngine
from ..sdk.tasks import Function, Worker
from .clock import LoopClock
from .disk import SimulatedDisk
from .invariants import audit, check_history, check_schedule
from .letterbox import Letterbox
from .life import Fuse, Life, When
from .loop import VirtualLoop
from .storage_view import StorageView
from .waiting import NotSettled, explain, person_for

_T = TypeVar("_T")

#: How long a job may take in virtual time unless the test says otherwise. Skipping it costs nothing.
HORIZON_S = 400 * 86_400.0


class TestOrchestrator:
    """Runs blueprints in a test: durable, on virtual time, with a plug that can be pulled.

    ```python
    def test_the_reminder_comes_after_two_weeks():
        with TestOrchestrator(reminder) as director:
            director.task("mail")(lambda params: {"sent": params["to"]})
            job = director.submit("reminder", {"to": "ada"})
            director.skip(days=14)
            assert director.get(job).status == "finished"
    ```

    Every call is synchronous and returns when it is answered; between calls time stands still. A call
    that meets a power cut (`crash_at`) goes through the restart and asks again, as a client would.
    `asyncio.sleep` in handlers and tasks is skipped like any other time; what would run in a thread
    runs in place. Leaving the `with` block checks the promises over everything that happened.
    """

    __test__ = False  # not a test class, whatever its name

    def __init__(
        self,
        *blueprints: StateMachineBlueprint,
        workers: Iterable[Worker] = (),
        seed: int = 0,
        config: Config | None = None,
        clients: Mapping[str, ClientConfig] | None = None,
        history: HistoryStorage | None = None,
    ) -> None:
        self.config = config or Config(instance_id="test")
        self.history: HistoryStorage = history or MemoryHistory()
        self._loop = VirtualLoop()
        # The grace after a start passes before the test begins: a new store has no outage behind it.
        self.clock = LoopClock(self._loop, skew_s=-self.config.lease_s)
        self._ids = IdGenerator(self.clock, random.Random(seed))
        self._disk = SimulatedDisk(delay=lambda: 0.0)
        self._clients = clients or {}
        #: Where webhooks go: nothing leaves the test.
        self.letterbox = Letterbox()
        self._blueprints: list[StateMachineBlueprint] = []
        #: Every graph that a job of this test may have followed.
        self._graphs: dict[tuple[str, str], Graph] = {}
        self._workers = list(workers)
        self._own: Worker | None = None
        self._life: Life | None = None
        self._retries = 0
        self._closed = False
        #: How often the power has failed.
        self.crashes = 0
        self.register(*blueprints)

    # -- the cast --------------------------------------------------------------------------------

    def register(self, *blueprints: StateMachineBlueprint) -> None:
        """Make blueprints known; a later one of the same name becomes the newest."""
        for blueprint in blueprints:
            blueprint.validate()
            self._blueprints.append(blueprint)
            self._graphs[(blueprint.name, blueprint.version)] = blueprint.graph
            if self._life is not None:
                self._life.director.register_blueprint(blueprint)
                self._life.wake()

    def forget(self, *blueprints: StateMachineBlueprint) -> None:
        """Leave blueprints out of the next start, as a deploy does. Takes effect with `crash`."""
        self._blueprints = [known for known in self._blueprints if known not in blueprints]

    def task(self, name: str) -> Callable[[Function], Function]:
        """Define a task function for this test: `@director.task("mail")`."""
        if self._own is None:
            self._own = Worker(f"local-{len(self._workers)}", concurrency=100)
            self._workers.append(self._own)
        own, life = self._own, self._life

        def register(func: Function) -> Function:
            own.task(name)(func)
            if life is not None:  # whoever is at work already keeps its skills: this one is a new worker
                self._own = None
                self._play(lambda: life.join(own))
            return func

        return register

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, blueprint: str, input: dict[str, Any] | None = None, **options: Any) -> Job:
        """Accept a job. Options are those of `Submission`."""
        if self._open().outlet.fuse is not None:
            # A client that may have to ask again brings a key, so that it does not get a second job.
            self._retries += 1
            options.setdefault("idempotency_key", f"asked-again-{self._retries}")
        return self._play(lambda: self.director.submit(blueprint, input, **options))

    def run(
        self,
        blueprint: str,
        input: dict[str, Any] | None = None,
        timeout_s: float | None = None,
        **options: Any,
    ) -> Job:
        """Submit, and go on until the job has settled or only a person can move it."""
        job = self.submit(blueprint, input, **options)
        return self._play(lambda: self._wait(job.id, timeout_s, for_person=True))

    def get(self, job: Job | str) -> Job:
        """The job as it is, after everything that happens at this instant."""
        return self._play(lambda: self._settled_get(_id(job)))

    def wait(self, job: Job | str, timeout_s: float | None = None) -> Job:
        """The job once it has settled; `NotSettled` after `timeout_s` virtual seconds (400 days)."""
        return self._play(lambda: self._wait(_id(job), timeout_s, for_person=False))

    def approve(
        self, job: Job | str, decision: str, comment: str = "", data: dict[str, Any] | None = None
    ) -> Job:
        """Decide for a person, and let everything happen that follows at once."""
        visit = self.get(job).visit
        return self._signal(
            job,
            lambda: self.director.approve(_id(job), decision, comment, data),
            lambda now: any(given.visit == visit for given in now.approvals),
        )

    def cancel(self, job: Job | str, reason: str = "") -> Job:
        """Ask for a stop."""
        return self._signal(
            job, lambda: self.director.cancel(_id(job), reason), lambda now: now.cancel is not None
        )

    def release(self, job: Job | str, data: dict[str, Any] | None = None) -> Job:
        """Let a quarantined job try again, with `data` merged in."""
        visit = self.get(job).visit
        return self._signal(
            job, lambda: self.director.release(_id(job), data), lambda now: now.visit != visit
        )

    def fail(self, job: Job | str, reason: str = "") -> Job:
        """Give a quarantined job up."""
        return self._signal(
            job, lambda: self.director.fail(_id(job), reason), lambda now: now.status.terminal
        )

    def events(self, job: Job | str) -> list[Event]:
        """Everything that happened to the job, in order."""
        return self._play(lambda: self._events(_id(job)))

    def states(self, job: Job | str) -> list[str]:
        """The states that the job has entered, in order."""
        return [event.state or "" for event in self.events(job) if event.type is EventType.STATE_STARTED]

    def jobs(self) -> list[Job]:
        """Every job that was ever accepted, oldest first; children too."""
        return [self.get(job_id) for job_id in list(self._disk.jobs)]

    # -- time ------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The virtual time of day."""
        self._open()
        return self.clock.now()

    def skip(self, seconds: float = 0.0, **more: float) -> None:
        """Let time pass: seconds, or any arguments of `timedelta` (`days=14`)."""
        step = timedelta(seconds=seconds, **more)
        if step < timedelta():
            raise ValueError(f"expected time to move forward, got {step}")
        until = self.now + step

        async def pass_by() -> None:
            await asyncio.sleep((until - self.clock.now()).total_seconds())
            self._open().wake()
            await self._loop.quiet()

        self._play(pass_by)

    # -- accidents -------------------------------------------------------------------------------

    def crash(self) -> None:
        """A power cut: memory and workers are gone; a new start goes on from what is on the disk."""
        self._open().outlet.cut()
        self._play(self._loop.quiet)

    def crash_at(self, boundary: int | Callable[[Event], bool], when: When = "before") -> None:
        """Cut the power at a commit boundary: at the nth write from now, or at the one with such an event.

        "before": the write does not reach the disk. "after": it does, and nobody is told.
        """
        if when not in ("before", "after"):
            raise ValueError(f"when: expected 'before' or 'after', got {when!r}")
        if isinstance(boundary, int):
            if boundary < 1:
                raise ValueError(f"expected the number of a write from 1 on, got {boundary}")
            fuse = Fuse(writes=boundary, carries=None, when=when)
        else:
            fuse = Fuse(writes=None, carries=boundary, when=when)
        self._open().outlet.fuse = fuse

    # -- life ------------------------------------------------------------------------------------

    @property
    def director(self) -> OrchestratorEngine:
        """The orchestrator itself, as it runs now; a crash replaces it."""
        return self._open().director

    @property
    def writes(self) -> int:
        """How many writes have reached the disk: what is decided together is written together."""
        return self._disk.writes

    def call(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Run something async on the virtual loop, beside the orchestrator."""
        return self._play(ask)

    def check(self) -> None:
        """`InvariantBroken` unless the promises hold over everything that happened so far."""
        self._play(self._check)

    def close(self, *, check: bool = True) -> None:
        """Check the promises, and end. Twice is fine."""
        if self._closed:
            return
        try:
            if check and self._life is not None:
                self.check()
        finally:
            self._closed = True
            if self._life is not None:
                self._loop.run_until_complete(self._life.end())
            self._loop.close()

    def __enter__(self) -> "TestOrchestrator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(check=kind is None)

    # -- behind the face -------------------------------------------------------------------------

    def _open(self) -> Life:
        """The current life; the first use begins it."""
        if self._closed:
            raise RuntimeError("this TestOrchestrator is closed")
        if self._life is None:
            self._loop.run_until_complete(self._begin())
        assert self._life is not None
        return self._life

    async def _begin(self) -> None:
        first = self._life is None
        life = Life(
            self._disk, self.config, self.history, self._clients, self.clock, self._ids, self.letterbox
        )
        await life.start(self._blueprints, self._workers)
        if first:
            await asyncio.sleep(self.config.lease_s)
        self._life, self._own = life, None

    def _play(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        self._open()
        return self._loop.run_until_complete(self._through_crashes(ask))

    async def _through_crashes(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Ask, and ask again after a power cut."""
        while True:
            life = self._life
            assert life is not None
            assert life.keeper is not None
            asking = asyncio.ensure_future(_as_coroutine(ask))
            cut = asyncio.ensure_future(life.outlet.is_cut.wait())
            await asyncio.wait({asking, cut, life.keeper}, return_when=asyncio.FIRST_COMPLETED)
            cut_off = life.outlet.is_cut.is_set()
            cut.cancel()
            if not cut_off:
                if not asking.done():
                    asking.cancel()
                    life.keeper.result()  # a chore failed: that is a bug, and the test should see it
                return await asking
            answered = asking.done() and not asking.cancelled() and asking.exception() is None
            await life.end()
            self.crashes += 1
            await self._begin()
            if answered:
                return asking.result()

    async def _wait(self, job_id: str, timeout_s: float | None, for_person: bool) -> Job:
        left_s = HORIZON_S if timeout_s is None else timeout_s
        give_up = self.clock.elapsed() + left_s
        while True:
            stirred = self._open().stirred
            stirred.clear()
            job = await self.director.get(job_id)
            if job.status.settled:
                return job
            person = await person_for(self.director, job)
            if person is not None and for_person:
                return job
            left_s = give_up - self.clock.elapsed()
            if person is not None or left_s <= 0:
                skills = {skill for worker in self._workers for skill in worker.skills}
                raise NotSettled(job, person or await explain(self.director, job, skills))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stirred.wait(), left_s)

    async def _settled_get(self, job_id: str) -> Job:
        await self._loop.quiet()
        return await self.director.get(job_id)

    def _signal(
        self, job: Job | str, ask: Callable[[], Awaitable[Job]], arrived: Callable[[Job], bool]
    ) -> Job:
        """Ask once; after a power cut, only if the word did not arrive. Then let its consequences happen."""
        crashes = self.crashes

        async def once() -> None:
            if self.crashes == crashes or not arrived(await self.director.get(_id(job))):
                await ask()

        self._play(once)
        return self.get(job)

    async def _events(self, job_id: str) -> list[Event]:
        events: list[Event] = []
        while page := await self.director.events(job_id, events[-1].seq if events else 0):
            events += page
        return events

    async def _check(self) -> None:
        await self._loop.quiet()
        jobs = {job_id: await self.director.get(job_id) for job_id in list(self._disk.jobs)}
        events = {job_id: await self._events(job_id) for job_id in jobs}
        check_history(self._graphs, events, jobs)
        audit(StorageView(self._open().storage))
        for entry in await self.director.scheduler.registry.all():
            check_schedule(entry, jobs.__contains__)


def _id(job: Job | str) -> str:
    return job if isinstance(job, str) else job.id


def _as_coroutine(ask: Callable[[], Awaitable[_T]]) -> Coroutine[Any, Any, _T]:
    async def call() -> _T:
        return await ask()

    return call()
