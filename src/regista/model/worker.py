"""Worker: who performs tasks, and what it brings along."""

from datetime import datetime
from typing import Any

from msgspec import Struct, field


class Gpu(Struct, frozen=True, omit_defaults=True, gc=False):
    """One graphics card."""

    model: str = ""
    vram_gb: float = 0.0


class Profile(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a worker has, wants and costs. Workers of equal skills, queues and profile form a class."""

    #: The documents' `worker_type`; a word for people.
    type: str = ""
    cpu_cores: float = 0.0
    ram_gb: float = 0.0
    disk_gb: float = 0.0
    gpus: tuple[Gpu, ...] = ()
    #: Program → version.
    software: dict[str, str] = field(default_factory=dict)
    #: Installed models or artifacts: name → version.
    models: dict[str, str] = field(default_factory=dict)
    #: Skills or models that are loaded and warm right now.
    hot: tuple[str, ...] = ()
    #: Whatever else constraints may ask for; `capabilities.extra` of the wire ends up here.
    labels: dict[str, Any] = field(default_factory=dict)
    #: Tasks must tolerate these to come here.
    taints: tuple[str, ...] = ()
    zone: str = ""
    cost_per_second: float = 0.0
    #: Overrides `cost_per_second` for a skill.
    cost_per_skill: dict[str, float] = field(default_factory=dict)
    #: 0 to 1, from history.
    reputation: float = 1.0

    def cost_of(self, skill: str) -> float:
        """Price per second of doing this skill here."""
        return self.cost_per_skill.get(skill, self.cost_per_second)


class Worker(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A registered worker. `session` is the epoch of its registration: an old connection loses by it."""

    id: str
    skills: tuple[str, ...]
    #: None serves any queue.
    queues: tuple[str, ...] | None = None
    #: Tasks at once, in all; `limits` says how many of one skill.
    capacity: int = 10
    limits: dict[str, int] = field(default_factory=dict)
    profile: Profile = Profile()
    #: Skill → JSON schema of its params, where the worker told one.
    schemas: dict[str, Any] = field(default_factory=dict)
    #: How it is connected: local, stream or poll.
    transport: str = "local"
    hostname: str = ""
    #: Where its registration came from, as far as we could see.
    address: str = ""
    #: Names the process: two with one id are told apart by it. Empty where the worker says nothing.
    incarnation: str = ""
    #: Seconds without a sign of life after which it counts as lost; None is the orchestrator's default.
    lease_s: float | None = None
    session: int = 0
    #: The instance that holds the connection.
    instance: str = ""
    #: A person wants it to get no more tasks.
    draining: bool = False
    #: When its stream was closed, by the instance that had it; None while it is connected, or polls.
    cut_at: datetime | None = None
    #: How often the record was written again in this session. Only the store counts: `note` compares it.
    notes: int = 0
    registered_at: datetime | None = None

    def serves(self, queue: str, skill: str) -> bool:
        """A task needs its queue and its skill."""
        return skill in self.skills and (self.queues is None or queue in self.queues)


class Slots(Struct, frozen=True, omit_defaults=True, gc=False):
    """The free slots of workers that are alike, at one instance."""

    #: One of them; which one does not matter.
    worker: Worker
    #: Workers with a free slot.
    seats: int
    #: Free slots of all of them.
    free: int
    #: Attempts in the hands of the one that has the fewest.
    held: int = 0
