"""Rescuer: repeats what a lost hint, a crash or a deploy left behind."""

from datetime import datetime

from ..engines.base import TaskEngine
from .loop import Report


class Rescuer:
    """Rechecks everything that hints only announce (FENCES 4), every two seconds, on every instance."""

    name = "rescuer"
    needs_leader = False

    def __init__(self, engine: TaskEngine, interval_s: float = 2.0) -> None:
        self.interval_s = interval_s
        self._engine = engine

    async def run_once(self, now: datetime) -> Report:
        """Rechecks once."""
        return Report(done=await self._engine.recheck())
