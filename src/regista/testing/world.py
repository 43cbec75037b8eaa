"""World: two orchestrators, one store, some workers and clients, and everything that can go wrong."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from ..blueprint import StateMachineBlueprint
from ..config import Config
from ..errors import OrchestratorStopped, StorageError
from ..history.memory import MemoryHistory
from ..model import Change, Event, EventType, Gpu, Job, Profile, ResultVerdict, Task, TaskResult
from ..schedules.registry import ScheduleRegistry
from ..schedules.schedule import Schedule
from ..storage.codec import decode_job, decode_task
from ..storage.memory import MemoryStorage
from .clock import LoopClock
from .crowd import Crowd, allowances, client_of
from .disk import SimulatedDisk
from .ears import Ears
from .instance import Instance, Line
from .invariants import InvariantBroken, audit, check_history, check_schedule
from .loop import VirtualLoop
from .performer import TaskRunner
from .storage_view import StorageView
from .wardrobe import dress

_T = TypeVar("_T")


class Faults(Struct, frozen=True, kw_only=True):
    """How often things go wrong; 0 turns one off."""

    #: Chance, per commit, that the instance dies before it, while it is flushed, or after it.
    crash: float = 0.004
    #: Chance, per commit, that its answer is lost and the change is sent again.
    lost_answer: float = 0.02
    #: Mean virtual seconds between two of these.
    power_cut_s: float = 25.0
    worker_death_s: float = 6.0
    worker_nap_s: float = 6.0
    #: Chance, per frame or call, that it is lost; and that a result is sent twice.
    lost_frame: float = 0.02
    duplicate: float = 0.1
    #: Chance that a client cancels its job.
    cancel: float = 0.1


class World:
    """One run: everything hangs on one seed. Same seed, same trace, to the byte."""

    lease_s = 3.0

    def __init__(
        self,
        blueprints: Sequence[StateMachineBlueprint],
        seed: int,
        *,
        jobs: int,
        instances: int,
        workers: int,
        faults: Faults,
        storm_s: float,
        horizon_s: float,
        tasks: dict[str, Callable[[dict[str, Any], random.Random], dict[str, Any]]],
        make_input: Callable[[random.Random], dict[str, Any]],
        crash_at: tuple[int, str] | None,
        schedules: Mapping[str, Schedule] | None = None,
    ) -> None:
        self.loop = VirtualLoop()
        self.clock = LoopClock(self.loop)
        self.chance = random.Random(seed)
        self.blueprints = list(blueprints)
        self.faults = faults
        self.storm_s = storm_s
        self.horizon_s = horizon_s
        self.history = MemoryHistory()
        self.disk = SimulatedDisk(lambda: self.chance.uniform(0.0002, 0.004))
        self.store = MemoryStorage(self.clock, self.disk)
        self.trace: list[str] = []
        self.fired: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.troubles: Counter[str] = Counter()
        self.commits = 0
        self._seen_commits = 0
        self._quiet_since = 0.0
        self._crash_at = crash_at
        self._jobs = jobs
        #: What the file of every instance says, while clients come.
        self.schedules = dict(schedules or {})
        self._scheduled = dict(self.schedules)
        #: What some of the clients may have.
        self.allowances = allowances(jobs)
        self._tasks = tasks
        self.make_input = make_input
        self._names = [f"director-{number}" for number in range(instances)]
        self.instances: dict[str, Instance] = {}
        self.ears = Ears(self)
        self._worker_count = workers
        self.performers: list[TaskRunner] = []
        self.acked: dict[str, str] = {}
        self._accepted: dict[str, str] = {}
        self._started: dict[str, str] = {}
        self._outage_until = 0.0
        #: What an instance calls itself, where that is no longer its name.
        self._titles: dict[str, str] = {}
        self._spawned: set[asyncio.Task[Any]] = set()
        self._problem: BaseException | None = None
        self.over = False
        self.loop.set_exception_handler(self._heard_error)

    def _heard_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and self._problem is None:
            self._problem = error

    # -- the parts -------------------------------------------------------------------------------

    def config(self, name: str) -> Config:
        """Everything happens a little faster than in life."""
        return Config(
            instance_id=self._titles.get(name, name), lease_s=self.lease_s, cancel_grace_s=2.0, handler_retry_first_s=0.1,
            worker_timeout_s=20.0, approval_secret="a-secret-of-the-simulation",
        )  # fmt: skip

    def skew(self, name: str) -> float:
        """The last instance's time of day is wrong by a few seconds."""
        return 2.5 if name == self._names[-1] and len(self._names) > 1 else 0.0

    @property
    def stormy(self) -> bool:
        """Faults happen; later it gets quiet, so that everything can come to its end."""
        return self.loop.time() < self.storm_s and not self.over

    def spawn(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """Start something that lives as long as it likes."""
        task = self.loop.create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._spawned.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._problem is None:
            self._problem = error

    def count(self, what: str) -> None:
        """A fault fired."""
        self.fired[what] += 1
        self.note(f"fault {what}")

    def note(self, line: str) -> None:
        """One more line of the trace."""
        self.trace.append(f"{self.loop.time():.6f} {line}")

    # -- the network -----------------------------------------------------------------------------

    def pick_instance(self) -> Instance:
        alive = [instance for instance in self.instances.values() if instance.alive]
        if not alive:
            raise ConnectionError("nobody answers")
        return self.chance.choice(alive)

    async def network(self, instance: Instance, call: Callable[[], Awaitable[_T]]) -> _T:
        """A call over the wire: it takes time, may not arrive, and its answer may not come back."""
        task = asyncio.ensure_future(self._through(instance, call))
        done, _ = await asyncio.wait([task], timeout=5.0)
        if not done:
            task.cancel()
            raise ConnectionError("timed out")
        if task.cancelled():
            raise ConnectionError("the other side died")
        return task.result()

    async def _through(self, instance: Instance, call: Callable[[], Awaitable[_T]]) -> _T:
        await asyncio.sleep(self.chance.uniform(0.0005, 0.01))
        if not instance.alive or self._drops():
            raise ConnectionError("lost on the way")
        # The call goes on at the other side, whatever becomes of the caller.
        running = asyncio.ensure_future(call())
        running.add_done_callback(_hear_out)
        try:
            answer = await asyncio.shield(running)
        except (StorageError, OrchestratorStopped) as error:
            raise ConnectionError(str(error)) from error
        await asyncio.sleep(self.chance.uniform(0.0005, 0.01))
        if self._drops() or instance.line.dead:
            raise ConnectionError("the answer was lost")
        return answer

    def frame(self, receive: Callable[..., None], *arguments: Any) -> None:
        """One message to a worker: late, lost or doubled."""
        if self._drops():
            return
        self.loop.call_later(self.chance.uniform(0.0005, 0.02), receive, *arguments)
        if self.stormy and self.chance.random() < self.faults.duplicate:
            self.count("duplicate frame")
            self.loop.call_later(self.chance.uniform(0.0005, 0.5), receive, *arguments)

    def _drops(self) -> bool:
        lost = self.stormy and self.chance.random() < self.faults.lost_frame
        if lost:
            self.count("lost frame")
        return lost

    def again(self) -> bool:
        """Send a result once more, although it was acknowledged."""
        return self.chance.random() < self.faults.duplicate

    def work_s(self) -> float:
        """How long a task takes."""
        return (
            self.chance.uniform(0.001, 0.05) if self.chance.random() < 0.9 else self.chance.uniform(0.1, 4.0)
        )

    def outcome(self, task: Task) -> dict[str, Any]:
        """How a task ends: as its function says, or by chance."""
        function = self._tasks.get(task.type)
        if function is not None:
            return function(task.params, self.chance)
        throw = self.chance.random()
        if throw < 0.07:
            return {"status": "failure", "error": "TRANSIENT_ERROR"}
        if throw < 0.09:
            return {"status": "failure", "error": "PERMANENT_ERROR"}
        if throw < 0.10:
            return {"status": "failure", "error": "INVALID_INPUT_ERROR"}
        if throw < 0.11:
            return {"status": "never-heard-of-it"}
        return {"status": self.chance.choice(sorted(task.transitions)), "data": {"throw": round(throw, 3)}}

    # -- what is seen ----------------------------------------------------------------------------

    def saw_start(self, performer: TaskRunner, task: Task) -> None:
        """A worker got a task: the offer must be durable, nobody else's, and something that it may do."""
        worker_id, attempt = performer.id, task.attempt_id
        self.note(f"start {attempt} on {worker_id}")
        stored = self.disk.tasks.get(task.id)
        job = self.disk.jobs.get(task.job_id)
        gone = stored is None and job is not None
        if not gone and (stored is None or decode_task(stored).attempt < task.attempt):
            raise self.fatal(4, task.job_id, f"attempt {attempt} reached a worker before it was durable")
        if not performer.may_do(task):
            raise self.fatal(
                3, task.job_id, f"{worker_id} was given {attempt}, which asks for {task.queue_key.options}"
            )
        first = self._started.setdefault(attempt, worker_id)
        if first != worker_id:
            raise self.fatal(3, task.job_id, f"attempt {attempt} was handed to {first} and to {worker_id}")

    def saw_changes(self, changes: Sequence[Change]) -> None:
        """12: after an outage of our own, what a living worker holds does not expire for one lease."""
        if self.loop.time() >= self._outage_until:
            return
        holding = {
            attempt for performer in self.performers if performer.awake for attempt in performer.holding
        }
        for event in (event for change in changes for event in change.events):
            expired = event.type in (EventType.TASK_LOST, EventType.TASK_TIMED_OUT)
            if expired and f"{event.task_id}-{event.attempt}" in holding:
                raise self.fatal(5, event.task_id or "", "expired right after an outage, in a living worker")

    def saw_verdict(self, result: TaskResult, verdict: ResultVerdict) -> None:
        """A worker was answered."""
        self.note(f"verdict {result.task_id} {verdict}")
        before = self._accepted.get(result.task_id)
        if before is not None and not verdict.accepted:
            raise self.fatal(3, result.job_id, f"{result.task_id} was accepted, then {verdict}")
        if verdict.accepted:
            self._accepted[result.task_id] = result.outcome

    def fatal(self, promise: int, job_id: str, message: str) -> InvariantBroken:
        broken = InvariantBroken(promise, job_id, message)
        if self._problem is None:
            self._problem = broken
        return broken

    # -- faults ----------------------------------------------------------------------------------

    def crash_boundary(self) -> str | None:
        """Where, around this commit, the instance dies; mostly nowhere."""
        if self._crash_at is not None:
            number, boundary = self._crash_at
            return boundary if self.commits == number else None
        if not self.stormy or self.chance.random() >= self.faults.crash:
            return None
        return self.chance.choice(("before", "during", "after"))

    def crash(self, line: Line, why: str) -> None:
        """Kill -9 of one instance; it comes back a little later."""
        if line.dead:
            return
        line.cut()
        self.count(f"crash {why}")
        name = next(name for name, instance in self.instances.items() if instance.line is line)
        self.spawn(self._restart(name, self.chance.uniform(0.1, 2.0)))

    async def _restart(self, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if not self.over and not self.instances[name].alive:
            if self.chance.random() < 0.5:  # somebody else takes its place, who cannot claim to have been it
                self._titles[name] = f"{name}.{self.commits}"
            self.instances[name] = instance = Instance(self, name)
            self.note(f"start {name}")
            try:
                await instance.engine.start()
            except (asyncio.CancelledError, StorageError):
                self.note(f"{name} died while starting")
                if instance.alive:
                    instance.line.cut()
                self.spawn(self._restart(name, 0.5))

    async def _power_cut(self) -> None:
        """Everything volatile is gone: the store's memory and all instances. Workers are elsewhere."""
        self.count("power cut")
        self.disk.pull_the_plug()
        for instance in self.instances.values():
            instance.line.cut()
        self.store = MemoryStorage(self.clock, self.disk)
        await self.store.start()
        dark_s = self.chance.uniform(0.5, 6.0)
        self._outage_until = self.loop.time() + dark_s + self.lease_s
        for name in self._names:
            self.spawn(self._restart(name, dark_s))

    async def _storm(self) -> None:
        faults = self.faults
        while self.stormy:
            await asyncio.sleep(self.chance.uniform(0.2, 1.0))
            if self.over or self.loop.time() >= self.storm_s:
                return  # the last client ended, or the time is up, during the pause
            if faults.power_cut_s and self.chance.random() < 0.6 / faults.power_cut_s:
                await self._power_cut()
            for performer in list(self.performers):
                if faults.worker_death_s and self.chance.random() < 0.6 / faults.worker_death_s / 2:
                    await self._kill(performer)
                elif faults.worker_nap_s and self.chance.random() < 0.6 / faults.worker_nap_s / 2:
                    self.count("worker nap")
                    self.spawn(performer.nap(self.chance.uniform(0.5, 2.5 * self.lease_s)))

    async def _kill(self, performer: TaskRunner) -> None:
        if not performer.alive:
            return
        self.count("worker death")
        performer.die()
        await asyncio.sleep(self.chance.uniform(0.1, 1.0))
        performer.revive()

    # -- the run ---------------------------------------------------------------------------------

    async def play(self) -> None:
        """The whole run, and the checks at its end."""
        await self.store.start()
        for name in self._names:
            self.instances[name] = Instance(self, name)
            await self.instances[name].engine.start()
        for number in range(self._worker_count):
            # Every third one polls, and every third one is another class than the rest.
            profile = (
                Profile(ram_gb=64, gpus=(Gpu("any", 80),), cost_per_second=2)
                if number % 3 == 1
                else Profile()
            )
            performer = TaskRunner(self, f"worker-{number}", 3, polls=number % 3 == 2, profile=profile)
            self.performers.append(performer)
            performer.start()
        crowd = Crowd(self)
        operator = self.spawn(crowd.operate())
        self.spawn(self._storm())
        self.spawn(self._auditor())
        self.spawn(dress(self))
        clients = [self.loop.create_task(crowd.client(number)) for number in range(self._jobs)]
        await self._until_done(clients)
        self.over = True
        operator.cancel()
        self.close_the_books()
        await self._settle()
        await self._check()

    async def _until_done(self, clients: list["asyncio.Task[None]"]) -> None:
        while not all(client.done() for client in clients):
            await asyncio.wait(clients, timeout=1.0, return_when=asyncio.FIRST_EXCEPTION)
            if self._problem is not None:
                raise self._problem
            for client in clients:
                if client.done() and not client.cancelled() and client.exception() is not None:
                    raise client.exception() or AssertionError
            if self.loop.time() > self.horizon_s:
                await self._name_the_stuck()
            await self._skip_idle_time()

    async def _skip_idle_time(self) -> None:
        """When all is quiet and only a far-away timer is left, turn the time of day ahead to it."""
        if self.stormy or self.commits != self._seen_commits:
            self._seen_commits, self._quiet_since = self.commits, self.loop.time()
            return
        nearest = await self.store.next_due()
        if nearest is not None and self.loop.time() - self._quiet_since > 20:
            step = nearest - self.clock.now()
            if step.total_seconds() > 20:
                self.note(f"skip {step}")
                self.clock.jump(step)

    async def _name_the_stuck(self) -> None:
        audit(StorageView(self.store))
        for job_id in self.acked:
            (job,), _ = await self.store.load([job_id])
            if job is None:
                raise InvariantBroken(4, job_id, "was acknowledged and is gone")
            if not job.status.terminal:
                raise InvariantBroken(
                    1, job_id, f"never ended: {job.status} in {job.state!r}, waits for {job.wait}"
                )
        raise InvariantBroken(4, "?", "a client was never answered")

    async def _auditor(self) -> None:
        while not self.over:
            await asyncio.sleep(0.5)
            audit(StorageView(self.store))

    async def _settle(self) -> None:
        """Let children end, messages arrive, and history drain. A power cut at the very end must not prevent that."""
        if not any(instance.alive for instance in self.instances.values()):
            name = self._names[0]
            self.instances[name] = Instance(self, name)
            await self.instances[name].engine.start()
        for _ in range(int(self.horizon_s)):
            await asyncio.sleep(1.0)
            if self._problem is not None:
                raise self._problem
            live = [decode_job(row.body) for row in self.disk.jobs.values() if row.live]
            if all(job.status.settled for job in live):
                break
        for instance in self.instances.values():
            if instance.alive:
                await instance.engine.recorder.drain()
                return

    async def _check_slots(self) -> None:
        """6: a slot is held by an attempt that the store or the worker knows, and by nothing else."""
        await asyncio.sleep(2 * self.lease_s)  # two heartbeats put right whatever was under way
        for performer in self.performers:
            connected = performer.connected if performer.awake else None
            if connected is None:
                continue
            known = {task.attempt_id for task in await self.store.held_by(performer.id)}
            for attempt in connected.attempts:
                if attempt not in known and attempt not in performer.holding:
                    raise InvariantBroken(6, attempt, f"nobody has it, and it holds a slot of {performer.id}")

    async def _check_quotas(self) -> None:
        """6: what a quota counts is the jobs that were accepted, each once."""
        for client, allowance in self.allowances.items():
            accepted = sum(client_of(number) == client for number in range(self._jobs))
            used = await self.store.quota_used(allowance.quota.counter)
            if used != accepted:
                raise InvariantBroken(6, client, f"{accepted} jobs were accepted, and {used} are counted")

    def close_the_books(self) -> None:
        """From now on no schedule ticks: what was started may come to its end."""
        self.schedules = {}
        for instance in self.instances.values():
            instance.engine.scheduler.take_over({})

    async def _check_schedules(self, jobs: Mapping[str, Job]) -> None:
        """8: each tick fired once, or was skipped and the reason is recorded."""
        book = ScheduleRegistry(self.store, self.clock, "UTC", keep=10_000)
        book.use_file(self._scheduled)
        for entry in await book.all():
            check_schedule(entry, jobs.__contains__)
            self.fired["tick"] += entry.state.fired
            self.fired["skipped tick"] += entry.state.skipped

    async def _check(self) -> None:
        await self._check_slots()
        await self._check_quotas()
        audit(StorageView(self.store))
        jobs = {row.id: decode_job(row.body) for row in self.disk.jobs.values()}
        await self._check_schedules(jobs)
        for job_id in self.acked:
            if job_id not in jobs:
                raise InvariantBroken(4, job_id, "was acknowledged and is gone")
        await self.ears.check(jobs)
        events = {job_id: await self.history.events(job_id, limit=100_000) for job_id in jobs}
        graphs = {(b.name, b.version): b.graph for b in self.blueprints}
        check_history(graphs, events, jobs)
        self._check_verdicts(events)
        self.ends.update(job.status.value for job in jobs.values())
        told = (event for job_id in events for event in events[job_id])
        self.troubles.update(
            event.message or event.code or "" for event in told if event.type is EventType.STATE_FAILED
        )
        for job_id in sorted(events):
            for event in events[job_id]:
                self.trace.append(f"{job_id} {event.seq} {event.at.isoformat()} {event.type} {event.state}")

    def _check_verdicts(self, events: dict[str, list[Event]]) -> None:
        """3 and 4: what a worker was told is what history says."""
        heard = {
            f"{event.task_id}-{event.attempt}"
            for told in events.values()
            for event in told
            if event.type in (EventType.TASK_FINISHED, EventType.TASK_FAILED)
        }
        for attempt in self._accepted:
            if attempt not in heard:
                raise InvariantBroken(4, attempt, "the worker was told that its result counts; it is gone")

    def close(self) -> None:
        """Leave nothing behind."""
        self.over = True
        for instance in self.instances.values():
            instance.line.cut()
        self.loop.close()


def _hear_out(done: "asyncio.Future[Any]") -> None:
    """Nobody waits for this call any more; its error is nobody's."""
    if not done.cancelled():
        done.exception()
