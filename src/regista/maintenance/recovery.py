"""RecoveryChore: repeats what a lost hint, a crash or a deploy left behind."""

from datetime import datetime

from ..engines.base import TaskEngine
from .chore import ChoreResult


class RecoveryChore:
    """Rechecks everything that hints only announce (FENCES 4), every two seconds, on every instance."""

    name = "recovery"
    needs_leader = False

    def __init__(self, engine: TaskEngine, interval_s: float = 2.0) -> None:
        self.interval_s = interval_s
        self._engine = engine

    async def run_once(self, now: datetime) -> ChoreResult:
        """Rechecks once."""
        return ChoreResult(done=await self._engine.recheck())
