"""How this instance is doing."""

from collections.abc import Callable, Sequence

from ..maintenance.chore import ChoreStatus
from .caller import Caller


class SystemService:
    """Reports on the background work of this instance."""

    def __init__(self, chores: Callable[[], Sequence[ChoreStatus]]) -> None:
        self._chores = chores

    def chores(self, caller: Caller) -> Sequence[ChoreStatus]:
        """How each chore has fared since the start, in the order in which they run; for operators."""
        caller.require_operator("see the background chores")
        return self._chores()
