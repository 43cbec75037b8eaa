"""Seating: keeps the seat of a polling worker as its session says. FENCES 10."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from ...dispatch.connected import Cancel, ConnectedWorker, Send
from ...dispatch.dispatcher import Dispatcher
from ...model import Task
from .session import PollingSession

#: Tells a worker to stop attempts: its session, its id, the attempts.
StopAttempts = Callable[[PollingSession, str, Sequence[str]], None]


class Seating:
    """What the dispatcher knows of a worker that polls: how many offers it takes, and for which skills."""

    def __init__(self, dispatcher: Dispatcher, stop: StopAttempts) -> None:
        self._dispatcher = dispatcher
        self._stop = stop

    def hands(self, session: PollingSession, worker_id: str) -> tuple[Send, Cancel]:
        """How tasks and cancels reach the worker from its seat."""
        return partial(self._send, session), partial(self._stop, session, worker_id)

    def _send(self, session: PollingSession, tasks: Sequence[Task]) -> None:
        session.mailbox.put(tasks)
        self.grant(session)

    def find(self, session: PollingSession) -> ConnectedWorker | None:
        """The seat that the session gave its worker, unless a newer one or nobody sits there."""
        worker = session.worker
        connected = None if worker is None else self._dispatcher.find(worker.id)
        return connected if connected is not None and connected.worker.session == session.number else None

    def grant(self, session: PollingSession) -> None:
        """As many offers as the open polls would take, less those that are on their way here."""
        connected = self.find(session)
        if connected is not None and connected.worker.transport == "poll":
            mailbox = session.mailbox
            credit = mailbox.wanted - len(mailbox.waiting) - len(connected.unsent_offers)
            if credit < 0:
                credit = 0
            if connected.credit != credit:
                self._dispatcher.set_credit(connected, credit)

    def sort_out(self, session: PollingSession) -> None:
        """Take out of the box what is not the worker's any more: it is over, or the worker was buried."""
        if session.mailbox.waiting:
            connected = self.find(session)
            session.mailbox.keep(() if connected is None else connected.attempts)

    def refresh(
        self, session: PollingSession, available: tuple[str, ...] | None, hot: tuple[str, ...] | None
    ) -> None:
        """What it can start right now, and what is warm, may be another than a moment ago."""
        connected = self.find(session)
        if connected is not None:
            self._refresh(session, connected, available, hot)

    def attend(
        self, session: PollingSession, available: tuple[str, ...] | None, hot: tuple[str, ...] | None
    ) -> bool:
        """The worker polls, and says so much. True: as far as we know, all its slots are taken."""
        connected = self.find(session)
        if connected is None:
            return False
        if connected.worker.transport != "poll":
            connected = self._take_over(session, connected)
        if available is None and not connected.worker.skills:
            available = session.skills  # it was full when it last said; now it asks for something
        self._refresh(session, connected, available, hot)
        return len(connected.attempts) >= connected.worker.capacity

    def _refresh(
        self,
        session: PollingSession,
        connected: ConnectedWorker,
        available: tuple[str, ...] | None,
        hot: tuple[str, ...] | None,
    ) -> None:
        worker = connected.worker
        skills = worker.skills if available is None else available
        warm = worker.profile.hot if hot is None else hot
        if skills != worker.skills or warm != worker.profile.hot:
            session.worker = replace(worker, skills=skills, profile=replace(worker.profile, hot=warm))
            self._dispatcher.update(session.worker)

    def _take_over(self, session: PollingSession, streaming: ConnectedWorker) -> ConnectedWorker:
        """The worker had a stream, and polls now: what it holds stays, and offers go to its mailbox."""
        session.mailbox.empty()  # what waited when the stream was opened has left through it
        worker = session.worker = replace(streaming.worker, transport="poll")
        connected = self._dispatcher.connect(
            worker, *self.hands(session, worker.id), streaming.attempts, streaming.isolated
        )
        if streaming.draining:
            self._dispatcher.drain(worker.id, True)
        self.grant(session)
        return connected
