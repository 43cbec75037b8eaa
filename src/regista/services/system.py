"""How this instance is doing."""

from collections.abc import Callable, Sequence

from ..errors import NotReady
from ..maintenance.chore import ChoreStatus
from ..storage.base import JobStorage
from .caller import Caller


class SystemService:
    """Reports on this instance and its background work."""

    def __init__(
        self,
        is_running: Callable[[], bool],
        store: JobStorage,
        chores: Callable[[], Sequence[ChoreStatus]],
    ) -> None:
        self._is_running = is_running
        self._store = store
        self._chores = chores

    async def check_ready(self) -> None:
        """Raise NotReady before the start and while stopping, or what the store raises if it does not answer."""
        if not self._is_running():
            raise NotReady
        await self._store.next_due()  # any cheap question does: what counts is that there is an answer

    def chores(self, caller: Caller) -> Sequence[ChoreStatus]:
        """How each chore has fared since the start, in the order in which they run; for operators."""
        caller.require_operator("see the background chores")
        return self._chores()
