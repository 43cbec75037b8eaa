"""PollingService: workers that ask for tasks over HTTP. It keeps a session for each from one request to the next."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...clock import Clock
from ...dispatch.connected import ConnectedWorker
from ...dispatch.dispatcher import Dispatcher
from ...errors import OrchestratorStopped, StorageOutcomeUnknown
from ...model import ResultVerdict, Task, TaskResult, Worker
from ..protocol.dialects import HeartbeatReport, ProgressReport, to_heartbeat, to_worker, unregistered_worker
from ..protocol.messages import Heartbeat, Registration, registers_again
from ..service import HeartbeatReply, WorkerService
from .mailbox import OpenPoll
from .session import CommandSocket, DeliveredTask, PollingSession, PollingSessions, delivered_task

log = logging.getLogger("regista.desk")

#: A worker that says goodbye may still send what it had finished by then.
_LAST_WORDS_S = 2.0
#: For so long a worker that we know by hearsay is asked to register. Four of its beats: some of them are sent
#: by a part of the SDK that does not listen to the answer.
_ASKING_S = 60.0
#: A lease that was renewed so many seconds ago, or so small a part of itself, need not be renewed again: a busy worker
#: asks a thousand times a second, and every renewal is a question to the store.
_RENEWED_S = 1.0
_RENEWED_SHARE = 0.1


class UnknownWorker(Exception):
    """The worker must register (again)."""


class Registered(Struct, frozen=True):
    """A registration that was accepted."""

    worker: Worker
    #: Attempts that it reported and should stop.
    stop: tuple[str, ...] = ()


class PollHeartbeatReply(Struct, frozen=True):
    """What a heartbeat is answered."""

    stop: tuple[str, ...] = ()
    #: Please say everything again.
    full_sync: bool = False


class PollingService:
    """Takes in workers that poll, and knows them again from one request to the next.

    A worker has as many offers to get as polls of its are open (FENCES 10). One that we do not know, since
    it registered before our own restart, is taken in by what its poll or its heartbeat says: the older
    stock SDK registers once in its life, the newer one when it is told so by a 404.
    """

    def __init__(
        self,
        service: WorkerService,
        dispatcher: Dispatcher,
        clock: Clock,
        lease_s: float,
        poll_lease_s: float,
    ) -> None:
        self._service = service
        self._dispatcher = dispatcher
        self._clock = clock
        self._lease_s = lease_s
        self._poll_lease_s = poll_lease_s
        self._renewed_s = min(_RENEWED_S, _RENEWED_SHARE * min(lease_s, poll_lease_s))
        self._sessions = PollingSessions(self._new_session, self._is_connected)
        self._background: set[asyncio.Task[None]] = set()
        #: We stop: nobody waits any more.
        self.closed = False

    def _new_session(self, worker_id: str) -> PollingSession:
        return PollingSession(worker_id, self._set_credit, self._cancel)

    def _is_connected(self, worker_id: str, number: int) -> bool:
        connected = self._dispatcher.find(worker_id)
        return connected is not None and connected.worker.session == number

    def _find(self, session: PollingSession) -> ConnectedWorker | None:
        """The worker, if it is connected here under this session, by polling or by a stream."""
        connected = self._dispatcher.find(session.worker_id)
        return connected if connected is not None and connected.worker.session == session.number else None

    async def close(self) -> None:
        """We stop: every poll is answered now, every socket is closed with 1001."""
        self.closed = True
        for connection in (*self._sessions, *self._sessions.nameless):
            connection.close(1001, "the orchestrator stops")
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    # -- coming ----------------------------------------------------------------------------------

    async def register(self, said: Registration, address: str = "") -> Registered:
        """A worker registers, for the first time or again; its older session is over."""
        ours = said.current_tasks is not None
        worker = to_worker(said, self._lease_s if ours else self._poll_lease_s)
        worker = replace(worker, address=address)
        running = said.current_tasks
        if said.cluster_id and said.cluster_id != await self._service.cluster_id():
            running = []  # another store's attempts are none of our business
        session = self._sessions.open(worker.id)
        session.mailbox.wake_all()
        known, stop = await self._register(session, worker, running, provisional=False)
        if said.available_skills is not None:
            self._update(session, tuple(said.available_skills), None)
        return Registered(known, stop)

    async def _register(
        self, session: PollingSession, worker: Worker, running: Sequence[str] | None, *, provisional: bool
    ) -> tuple[Worker, tuple[str, ...]]:
        """Connect the worker under a session. What waited in its mailbox comes again, as far as it is still the worker's."""
        undelivered = [task.attempt_id for task in session.mailbox.empty()]
        known, stop = await self._service.register(worker, running, session, undelivered)
        session.registered(known.session, worker.skills, provisional)
        self._set_credit(session)
        return known, stop

    async def _session_of(
        self, worker_id: str, number: int | None, *, only_heartbeat: bool = False
    ) -> PollingSession | None:
        """The session of a worker, its lease renewed; None when neither we nor the store know it.

        A heartbeat alone takes no worker from the instance that it has a stream to.

        Behind a balancer every request may go to another of us: what the store knows is as good as what we
        know. `number` is the session that the worker itself names, where it does.
        """
        session = self._sessions.find_connected(worker_id)
        ours = session is not None and number in (None, session.number)
        if ours and session is not None and await self._renew(session):
            return session
        worker = await self._service.records.find(worker_id)
        if worker is None or number not in (None, worker.session):
            return None
        session = self._sessions.open(worker_id)
        if only_heartbeat and self._service.records.streams_elsewhere(worker):
            known = await self._service.touch(worker_id, worker.session)
        else:
            attached = self._service.attach(
                session, worker_id, worker.session, running=None, lease_s=worker.lease_s
            )
            known = await attached is not None
        if not known:
            return None
        session.registered(worker.session, worker.skills, provisional=False)
        self._set_credit(session)
        return session

    def _cached_session(self, worker_id: str, number: int | None) -> PollingSession | None:
        """The same without a question to the store; None when that has to be asked."""
        session = self._sessions.find(worker_id)
        if session is None or number not in (None, session.number):
            return None
        connected = self._find(session)
        return session if connected is not None and self._is_fresh(connected) else None

    def _is_fresh(self, connected: ConnectedWorker) -> bool:
        """Its lease was renewed a moment ago."""
        renewed_at = connected.renewed_at
        return renewed_at is not None and self._clock.elapsed() - renewed_at < self._renewed_s

    async def _renew(self, session: PollingSession) -> bool:
        """Renew the lease, if that was not done a moment ago. False: the session is over."""
        connected = self._find(session)
        if connected is not None and self._is_fresh(connected):
            return True
        return await self._service.touch(session.worker_id, session.number)

    # -- its connection --------------------------------------------------------------------------

    def _set_credit(self, session: PollingSession) -> None:
        """As many offers as the open polls would take, less those that are on their way here."""
        connected = self._find(session)
        if connected is not None and connected.connection is session:
            mailbox = session.mailbox
            credit = max(0, mailbox.wanted - len(mailbox.waiting) - len(connected.unsent_offers))
            if connected.credit != credit:
                self._dispatcher.set_credit(connected, credit)

    def _update(
        self, session: PollingSession, available: tuple[str, ...] | None, hot: tuple[str, ...] | None
    ) -> None:
        """What it can start right now, and what is warm, may have changed; None: it has not."""
        connected = self._find(session)
        if connected is None:
            return
        worker = connected.worker
        skills = worker.skills if available is None else available
        warm = worker.profile.hot if hot is None else hot
        if skills != worker.skills or warm != worker.profile.hot:
            self._dispatcher.update(replace(worker, skills=skills, profile=replace(worker.profile, hot=warm)))

    def _note_poll(
        self, session: PollingSession, available: tuple[str, ...] | None, hot: tuple[str, ...] | None
    ) -> bool:
        """The worker polls, and says so much. True: as far as is known here, all its slots are taken."""
        connected = self._find(session)
        if connected is None:
            return False
        if connected.connection is not session:
            session.mailbox.empty()  # what waited when the stream was opened has left through it
            connected = self._dispatcher.move(connected, replace(connected.worker, transport="poll"), session)
            self._set_credit(session)
        if available is None and not connected.worker.skills:
            available = session.skills  # it was full when it last said; now it asks for something
        self._update(session, available, hot)
        return len(connected.attempts) >= connected.worker.capacity

    # -- tasks -----------------------------------------------------------------------------------

    def poll(
        self,
        worker_id: str,
        timeout_s: float,
        limit: int = 1,
        available: tuple[str, ...] | None = None,
        hot: tuple[str, ...] | None = None,
        number: int | None = None,
    ) -> "PollRequest":
        """Wait for tasks, and hand them out in the body (`async with`); none when the time is up.

        A body that does not come to its end has delivered nothing: its tasks wait for the next poll.
        """
        return PollRequest(self, self._find_polling(worker_id, available, hot, number), timeout_s, limit)

    def begin(self, session: PollingSession, limit: int) -> OpenPoll:
        """A poll is open: the worker takes so many offers more."""
        poll = session.mailbox.open(limit)
        self._set_credit(session)
        return poll

    def end(self, session: PollingSession, poll: OpenPoll, delivered: bool) -> None:
        """The poll is over. What could not be delivered waits for the next one."""
        left = session.mailbox.close(poll, delivered)
        if left:
            session.handed(left, self._clock.elapsed())
        else:
            self._set_credit(session)

    async def _find_polling(
        self,
        worker_id: str,
        available: tuple[str, ...] | None,
        hot: tuple[str, ...] | None,
        number: int | None,
    ) -> PollingSession:
        # A poll is a sign of life like any other.
        session = self._cached_session(worker_id, number) or await self._session_of(worker_id, number)
        if session is not None:
            if self._note_poll(session, available, hot):
                # A worker that asks for more has a free slot: its results may have gone to another instance.
                await self._service.free_ended(worker_id)
        elif number is not None:
            raise UnknownWorker(worker_id)
        else:
            session = self._sessions.open(worker_id)
            if available:
                await self._register_provisional(session, available, hot)
        if session.mailbox.waiting:
            # What is over, or was taken back when its lease lapsed, is not the worker's any more.
            connected = self._find(session)
            session.mailbox.keep(() if connected is None else connected.attempts)
        return session

    async def _register_provisional(
        self, session: PollingSession, skills: tuple[str, ...], hot: tuple[str, ...] | None
    ) -> None:
        """Connect a worker that is known by its poll or its heartbeat only. What it holds, its heartbeats will say."""
        worker = unregistered_worker(session.worker_id, skills, hot or (), self._poll_lease_s)
        await self._register(session, worker, None, provisional=True)

    # -- heartbeats ------------------------------------------------------------------------------

    async def refresh_lease(self, worker_id: str) -> bool:
        """A heartbeat that says nothing. False: we do not know the worker."""
        return await self._session_of(worker_id, None) is not None

    async def beat(
        self, worker_id: str, said: Heartbeat, began: float, version: str | None = None
    ) -> PollHeartbeatReply:
        """A heartbeat that arrived at `began` (by `elapsed`), from an SDK of this protocol version."""
        pulse = to_heartbeat(said)
        named = pulse.session is not None
        session = await self._session_of(worker_id, pulse.session, only_heartbeat=named)
        if session is None and named:
            raise UnknownWorker(worker_id)
        session = session or await self._register_by_heartbeat(pulse, worker_id)
        beat = await self._apply_heartbeat(session, pulse, began)
        if not beat.known:  # its lease lapsed meanwhile
            session = await self._register_by_heartbeat(pulse, worker_id)
            beat = await self._apply_heartbeat(session, pulse, began)
        if pulse.status == "offline":
            await self._leave(session, worker_id, pulse)
        elif session.provisional and registers_again(version) and self._is_asking(session):
            raise UnknownWorker(worker_id)
        stop = tuple(attempt for attempt in beat.cancel if not session.has_ended(attempt))
        return PollHeartbeatReply(stop, full_sync=session.provisional)

    def _is_asking(self, session: PollingSession) -> bool:
        """For a while only: whoever beats on without having registered does not know how."""
        now = self._clock.elapsed()
        if session.asked_at is None:
            session.asked_at = now
        return now - session.asked_at < _ASKING_S

    async def _register_by_heartbeat(self, pulse: HeartbeatReport, worker_id: str) -> PollingSession:
        session = self._sessions.open(worker_id)
        await self._register_provisional(session, pulse.skills or pulse.available or (), pulse.hot)
        return session

    async def _apply_heartbeat(
        self, session: PollingSession, pulse: HeartbeatReport, began: float
    ) -> HeartbeatReply:
        self._apply_report(session, pulse)
        fresh = session.fresh(began)
        # What has just left for a worker that is connected elsewhere is not known here, so its heartbeat decides nothing.
        running = None if self._find(session) is None else pulse.running
        return await self._service.heartbeat(
            session.worker_id, session.number, running, began=began, fresh=fresh
        )

    def _apply_report(self, session: PollingSession, pulse: HeartbeatReport) -> None:
        available = pulse.available
        if pulse.skills is not None and pulse.status != "offline":
            session.skills, session.provisional = pulse.skills, False
            available = pulse.skills if available is None else available
        elif session.provisional and available:
            session.skills = tuple(dict.fromkeys([*session.skills, *available]))
        self._update(session, available, pulse.hot)
        draining = pulse.status == "draining"
        if draining != session.reported_draining and not session.leaving:
            session.reported_draining = draining
            self._service.drain(session.worker_id, draining)

    # -- results, events, commands ---------------------------------------------------------------

    async def result(self, result: TaskResult) -> tuple[ResultVerdict, DeliveredTask | None]:
        """A result; answered after the commit that it caused, with what was known of its task before."""
        session = self._sessions.find(result.worker_id)
        known = None if session is None else session.recall(result.task_id)
        if known is None and (task := await self._service.find_task(result.task_id)) is not None:
            known = delivered_task(task)
        if session is not None:
            session.ended(result.task_id, self._clock.elapsed())
        try:
            verdict = await self._service.deliver(result)
        except (StorageOutcomeUnknown, OrchestratorStopped):
            if session is not None:
                session.not_ended(result.task_id)  # the worker still has it, and will say it again
            raise
        if session is not None and session.leaving:
            await self._leave_if_done(session, result.worker_id)
        return verdict, known

    def progress(self, said: ProgressReport, worker_id: str) -> None:
        """How far an attempt of this worker is; an empty id is one that nobody could tell."""
        self._service.progress(said.attempt_id, said.value, said.message, said.checkpoint, worker_id)

    def _cancel(self, session: PollingSession, attempt_ids: Sequence[str]) -> None:
        """Stop these. One that has not left is taken back; for the others a command is sent over the socket."""
        worker_id = session.worker_id
        waiting = [task.attempt_id for task in session.mailbox.take(attempt_ids)]
        for attempt_id in waiting:
            self._dispatcher.release(worker_id, attempt_id)
        if waiting:
            self._later(self._service.hand_back(worker_id, waiting))
        gone = [attempt_id for attempt_id in attempt_ids if attempt_id not in waiting]
        if gone:
            for socket in self._sessions.sockets_of(worker_id):
                socket.stop(gone)

    async def connect(self, worker_id: str | None, socket: CommandSocket) -> None:
        """A command socket opens. A second one of the same worker closes the first."""
        if self.closed:
            socket.close(1001, "the orchestrator stops")
        elif worker_id is None:
            self._sessions.nameless[socket] = None
        else:
            session = await self._session_of(worker_id, None) or self._sessions.open(worker_id)
            old, session.socket = session.socket, socket
            if old is not None:
                old.close(1008, "another connection of this worker took its place")
            held = await self._service.held(worker_id)
            if wanted := [task.attempt_id for task in held if task.cancel_requested]:
                socket.stop(wanted)

    def disconnect(self, worker_id: str | None, socket: CommandSocket) -> None:
        """A command socket is closed. That changes nothing else (FENCES 9)."""
        self._sessions.nameless.pop(socket, None)
        session = None if worker_id is None else self._sessions.find(worker_id)
        if session is not None and session.socket is socket:
            session.socket = None

    # -- going -----------------------------------------------------------------------------------

    async def _leave(self, session: PollingSession, worker_id: str, pulse: HeartbeatReport) -> None:
        """No more tasks for it. What it lists it may still finish; its lease says how long."""
        session.leaving = True
        self._service.drain(worker_id)
        session.mailbox.wake_all()
        await self._service.hand_back(worker_id, [t.attempt_id for t in session.mailbox.empty()])
        running = frozenset(pulse.running or ())
        if pulse.session is not None and not running:
            await self._service.leave(worker_id, session.number)  # ours: it has sent what it had
        elif not await self._leave_if_done(session, worker_id):
            self._later(self._finish_leaving(session, worker_id, session.number, running))

    async def _finish_leaving(
        self, session: PollingSession, worker_id: str, number: int, running: frozenset[str]
    ) -> None:
        """What it neither lists nor has reported by now died with it."""
        await asyncio.sleep(_LAST_WORDS_S)
        if session.leaving and session.number == number:
            held = [task.attempt_id for task in await self._service.held(worker_id)]
            await self._service.hand_back(worker_id, [a for a in held if a not in running])
            await self._leave_if_done(session, worker_id)

    async def _leave_if_done(self, session: PollingSession, worker_id: str) -> bool:
        if await self._service.held(worker_id):
            return False
        await self._service.leave(worker_id, session.number)
        return True

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._quietly(work), name="desk")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (StorageOutcomeUnknown, OrchestratorStopped):
            pass  # stored: it goes on after the next start
        except Exception:
            log.exception("taking tasks back failed; the worker's lease will", extra={"action": "hand_back"})


class PollRequest:
    """One poll, from the first look at the worker to the answer that has left, or has not."""

    __slots__ = ("_desk", "_finding", "_limit", "_poll", "_session", "_timeout_s")

    def __init__(
        self, desk: PollingService, finding: Coroutine[Any, Any, PollingSession], timeout_s: float, limit: int
    ) -> None:
        self._desk = desk
        self._finding = finding
        self._timeout_s = timeout_s
        self._limit = limit

    async def __aenter__(self) -> list[Task]:
        session = self._session = await self._finding
        poll = self._poll = self._desk.begin(session, self._limit)
        try:
            await poll.wait(0.0 if self._desk.closed else self._timeout_s)
        except BaseException:
            self._desk.end(session, poll, delivered=False)
            raise
        return poll.tasks

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._desk.end(self._session, self._poll, delivered=kind is None)
