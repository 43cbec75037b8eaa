"""TaskRunner: a simulated worker behind a bad network. It dies, sleeps, repeats itself and comes late."""

import asyncio
import functools
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..dispatch.connected import CallbackConnection, ConnectedWorker
from ..dispatch.filters import first_mismatch
from ..model import Profile, Task, TaskFailure, TaskResult, Worker

if TYPE_CHECKING:
    from .instance import Instance
    from .world import World


class AnySkill(tuple[str, ...]):
    """Can do whatever a blueprint asks for."""

    def __contains__(self, skill: object) -> bool:
        return True


#: How long a simulated poll stays open.
_POLL_S = 1.0


class TaskRunner:
    """Keeps results until they are acknowledged, and tells every new session what it still has.

    One that `polls` is offered a task only while it asks for one.
    """

    def __init__(
        self,
        world: "World",
        worker_id: str,
        capacity: int,
        polls: bool = False,
        profile: Profile = Profile(),  # noqa: B008  # frozen
    ) -> None:
        self.world = world
        self.id = worker_id
        self.profile = profile
        #: All profiles that it ever had: an offer may be on its way while it changes.
        self._worn = [profile]
        self._polls = polls
        self._answered = asyncio.Event()
        self._capacity = capacity
        self._life = 0
        self._awake = asyncio.Event()
        self._awake.set()
        self._doing: dict[str, asyncio.Task[None]] = {}
        self._results: dict[str, TaskResult] = {}
        self._session = 0
        self._instance: Instance | None = None
        self.alive = True

    @property
    def holding(self) -> list[str]:
        """What it has in its hands: being done, or done and not yet acknowledged."""
        return [*self._doing, *(attempt for attempt in self._results if attempt not in self._doing)]

    @property
    def connected(self) -> ConnectedWorker | None:
        """Its seat at the orchestrator that it talks to, once that knows it by its newest session."""
        found = self._instance.engine.dispatcher.find(self.id) if self._instance is not None else None
        return found if found is not None and found.worker.session == self._session else None

    @property
    def record(self) -> Worker:
        """As it registers."""
        transport = "poll" if self._polls else "stream"
        skills = AnySkill(("*",))
        return Worker(
            id=self.id, skills=skills, capacity=self._capacity, profile=self.profile, transport=transport
        )

    def may_do(self, task: Task) -> bool:
        """It meets, or once met, what the task asks for."""
        records = (replace(self.record, profile=profile) for profile in self._worn)
        return any(first_mismatch(task.queue_key, record) is None for record in records)

    @property
    def awake(self) -> bool:
        """Alive and not stopped."""
        return self.alive and self._awake.is_set()

    # -- faults ----------------------------------------------------------------------------------

    def die(self) -> None:
        """Kill -9: everything it had in its hands is gone."""
        self.alive = False
        self._life += 1
        for doing in self._doing.values():
            doing.cancel()
        self._doing.clear()
        self._results.clear()

    def revive(self) -> None:
        """A new process under the same name."""
        self.alive = True
        self._instance = None
        self._awake.set()
        self.start()

    def start(self) -> None:
        """Live."""
        self.world.spawn(self.run())
        if self._polls:
            self.world.spawn(self.poll())

    async def nap(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        self._awake.clear()
        await asyncio.sleep(seconds)
        self._awake.set()

    # -- talking ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Live: stay connected and beat, until death."""
        life = self._life
        while self.alive and life == self._life:
            await self._awake.wait()
            try:
                await self._say_hello_or_beat()
            except ConnectionError:
                self._instance = None
                await asyncio.sleep(0.2)
                continue
            await asyncio.sleep(self.world.lease_s / 3)

    async def poll(self) -> None:
        """Ask for one task after the other, until death."""
        life = self._life
        while self._polls and self.alive and life == self._life:
            await self._awake.wait()
            instance, session = self._instance, self._session
            if instance is None or not instance.alive:
                await asyncio.sleep(0.2)
                continue
            try:
                await self.world.network(instance, functools.partial(self._one_poll, instance, session))
            except ConnectionError:
                await asyncio.sleep(0.2)

    async def _one_poll(self, instance: "Instance", session: int) -> None:
        """The orchestrator's side of a poll."""
        dispatcher = instance.engine.dispatcher
        self._answered.clear()
        dispatcher.grant(self.id, session, 1)
        try:
            await asyncio.wait_for(self._answered.wait(), _POLL_S)
        except TimeoutError:
            pass
        finally:
            if instance.alive:
                dispatcher.grant(self.id, session, 0)

    async def dress(self, profile: Profile) -> None:
        """Become another class, and say so."""
        self.profile = profile
        self._worn.append(profile)
        self._report_profile()

    def _report_profile(self) -> None:
        instance = self._instance
        if instance is not None and instance.alive:
            known = replace(self.record, session=self._session, instance=instance.name)
            instance.engine.dispatcher.update(known)

    async def _say_hello_or_beat(self) -> None:
        instance = self._instance
        if instance is None or not instance.alive:
            await self._register(self.world.pick_instance())
            return
        service = instance.engine.workers
        session, holding = self._session, self.holding
        beat = await self.world.network(instance, lambda: service.heartbeat(self.id, session, holding))
        if beat.known:
            self._stop(beat.cancel)
        else:
            await self._register(instance)

    async def _register(self, instance: "Instance") -> None:
        life = self._life
        record = self.record

        def send(tasks: Sequence[Task]) -> None:
            self._answered.set()
            if instance.alive:
                for task in tasks:
                    self.world.frame(self._receive, task, life)

        def cancel(attempts: Sequence[str]) -> None:
            if instance.alive:
                self.world.frame(self._stop, list(attempts))

        service, holding = instance.engine.workers, self.holding
        known, strays = await self.world.network(
            instance, lambda: service.register(record, holding, CallbackConnection(send, cancel))
        )
        self._instance, self._session = instance, known.session
        if self.profile != record.profile:
            self._report_profile()  # it changed while the registration was under way
        self._stop(strays)

    def _stop(self, attempts: Collection[str]) -> None:
        for attempt in attempts:
            doing = self._doing.get(attempt)
            if doing is not None:
                doing.cancel()
            self._results.pop(attempt, None)

    # -- working ---------------------------------------------------------------------------------

    def _receive(self, task: Task, life: int) -> None:
        """A frame arrived. One that was sent to an earlier life finds nobody."""
        attempt = task.attempt_id
        if not self.alive or life != self._life or attempt in self._doing or attempt in self._results:
            return
        self.world.saw_start(self, task)
        self._doing[attempt] = self.world.spawn(self._do(task, life))

    async def _do(self, task: Task, life: int) -> None:
        attempt = task.attempt_id
        try:
            await asyncio.sleep(self.world.work_s())
            await self._awake.wait()
            said = self.world.outcome(task)
        except asyncio.CancelledError:
            said = {"status": "cancelled"}
        finally:
            self._doing.pop(attempt, None)
        if life == self._life:
            self._results[attempt] = _result(self.id, task, said)
            self.world.spawn(self._report(attempt, life))

    async def _report(self, attempt: str, life: int) -> None:
        """Send until acknowledged; to whoever answers, and sometimes once more."""
        while life == self._life and attempt in self._results:
            await self._awake.wait()
            result = self._results.get(attempt)
            if result is None:
                return  # called off meanwhile
            try:
                await self._tell(result)
            except ConnectionError:
                self._instance = None
                await asyncio.sleep(0.3)
                continue
            self._results.pop(attempt, None)

    async def _tell(self, result: TaskResult) -> None:
        """Mostly once; else twice, one after the other or to two orchestrators at the same moment."""
        if self.world.again():
            other = self._send(result, self.world.pick_instance())
            answers = await asyncio.gather(self._send(result), other, return_exceptions=True)
            failed = [answer for answer in answers if answer is not None]
            for error in failed:
                if len(failed) == 2 or not isinstance(error, ConnectionError):
                    raise error
            return
        await self._send(result)
        if self.world.again():
            await self._send(result)

    async def _send(self, result: TaskResult, instance: "Instance | None" = None) -> None:
        instance = instance or self._instance or self.world.pick_instance()
        verdict = await self.world.network(instance, lambda: instance.engine.workers.deliver(result))
        self.world.saw_verdict(result, verdict)


def _result(worker_id: str, task: Task, said: dict[str, Any]) -> TaskResult:
    error = said.get("error")
    return TaskResult(
        task_id=task.attempt_id,
        job_id=task.job_id,
        worker_id=worker_id,
        status=said.get("status"),
        data=said.get("data"),
        error=TaskFailure(error, "simulated") if error else None,
    )
