"""Seating: keeps the seat of a polling worker as its session says. FENCES 10."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from ...dispatch.connected import Cancel, Seat, Send
from ...dispatch.dispatcher import Dispatcher
from ...model import Task
from .session import Session

#: Tells a worker to stop attempts: its session, its id, the attempts.
StopAttempts = Callable[[Session, str, Sequence[str]], None]


class Seating:
    """What the dispatcher knows of a worker that polls: how many offers it takes, and for which skills."""

    def __init__(self, dispatcher: Dispatcher, stop: StopAttempts) -> None:
        self._dispatcher = dispatcher
        self._stop = stop

    def hands(self, session: Session, worker_id: str) -> tuple[Send, Cancel]:
        """How tasks and cancels reach the worker from its seat."""
        return partial(self._send, session), partial(self._stop, session, worker_id)

    def _send(self, session: Session, tasks: Sequence[Task]) -> None:
        session.mailbox.put(tasks)
        self.grant(session)

    def find(self, session: Session) -> Seat | None:
        """The seat that the session gave its worker, unless a newer one or nobody sits there."""
        worker = session.worker
        seat = None if worker is None else self._dispatcher.find(worker.id)
        return seat if seat is not None and seat.worker.session == session.number else None

    def grant(self, session: Session) -> None:
        """As many offers as the open polls would take, less those that are on their way here."""
        seat = self.find(session)
        if seat is not None and seat.worker.transport == "poll":
            mailbox = session.mailbox
            credit = mailbox.wanted - len(mailbox.waiting) - len(seat.unsent)
            if credit < 0:
                credit = 0
            if seat.credit != credit:
                self._dispatcher.give(seat, credit)

    def sort_out(self, session: Session) -> None:
        """Take out of the box what is not the worker's any more: it is over, or the worker was buried."""
        if session.mailbox.waiting:
            seat = self.find(session)
            session.mailbox.keep(() if seat is None else seat.holding)

    def refresh(
        self, session: Session, available: tuple[str, ...] | None, hot: tuple[str, ...] | None
    ) -> None:
        """What it can start right now, and what is warm, may be another than a moment ago."""
        seat = self.find(session)
        if seat is not None:
            self._refresh(session, seat, available, hot)

    def attend(
        self, session: Session, available: tuple[str, ...] | None, hot: tuple[str, ...] | None
    ) -> bool:
        """The worker polls, and says so much. True: as far as we know, all its slots are taken."""
        seat = self.find(session)
        if seat is None:
            return False
        if seat.worker.transport != "poll":
            seat = self._take_over(session, seat)
        if available is None and not seat.worker.skills:
            available = session.skills  # it was full when it last said; now it asks for something
        self._refresh(session, seat, available, hot)
        return len(seat.holding) >= seat.worker.capacity

    def _refresh(
        self, session: Session, seat: Seat, available: tuple[str, ...] | None, hot: tuple[str, ...] | None
    ) -> None:
        worker = seat.worker
        skills = worker.skills if available is None else available
        warm = worker.profile.hot if hot is None else hot
        if skills != worker.skills or warm != worker.profile.hot:
            session.worker = replace(worker, skills=skills, profile=replace(worker.profile, hot=warm))
            self._dispatcher.update(session.worker)

    def _take_over(self, session: Session, streaming: Seat) -> Seat:
        """The worker had a stream, and polls now: what it holds stays, and offers go to its mailbox."""
        session.mailbox.empty()  # what waited when the stream was opened has left through it
        worker = session.worker = replace(streaming.worker, transport="poll")
        seat = self._dispatcher.seat(
            worker, *self.hands(session, worker.id), streaming.holding, streaming.isolated
        )
        if streaming.draining:
            self._dispatcher.drain(worker.id, True)
        self.grant(session)
        return seat
