"""Worker: who performs tasks, as the orchestrator knows it."""

from datetime import datetime

from msgspec import Struct


class Worker(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A registered worker. `session` is the epoch of its registration: an old connection loses by it."""

    id: str
    skills: tuple[str, ...]
    #: None serves any queue.
    queues: tuple[str, ...] | None = None
    capacity: int = 10
    session: int = 0
    #: The instance that holds the connection.
    instance: str = ""
    registered_at: datetime | None = None

    def serves(self, queue: str, skill: str) -> bool:
        """A task needs its queue and its skill."""
        return skill in self.skills and (self.queues is None or queue in self.queues)
