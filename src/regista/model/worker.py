"""Worker: a registered worker, its resources and its cost."""

from datetime import datetime
from typing import Any

from msgspec import Struct, field


class Gpu(Struct, frozen=True, omit_defaults=True, gc=False):
    """One graphics card."""

    model: str = ""
    vram_gb: float = 0.0


class Profile(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Resources, constraints and cost of a worker. Workers of equal skills, queues and profile form a class."""

    #: The wire's `worker_type`; only shown to people.
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
    #: Further properties for constraints to match, including `capabilities.extra` of the wire.
    labels: dict[str, Any] = field(default_factory=dict)
    #: Only tasks that tolerate these run here.
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
    """A registered worker. `session` is the epoch of its registration; it fences out older connections."""

    id: str
    skills: tuple[str, ...]
    #: None serves any queue.
    queues: tuple[str, ...] | None = None
    #: Tasks at once, in all; `limits` says how many of one skill.
    capacity: int = 10
    limits: dict[str, int] = field(default_factory=dict)
    profile: Profile = Profile()
    #: Skill → JSON schema of its params, where the worker gives one.
    schemas: dict[str, Any] = field(default_factory=dict)
    #: How it is connected: local, stream or poll.
    transport: str = "local"
    hostname: str = ""
    #: The network address of its registration, if known.
    address: str = ""
    #: Identifies the process: distinguishes two processes with one worker id. Empty if the worker sends none.
    incarnation: str = ""
    #: Seconds without a heartbeat after which it counts as lost; None: the orchestrator's default.
    lease_s: float | None = None
    session: int = 0
    #: The instance that holds the connection.
    instance: str = ""
    #: Gets no new tasks, by request of a person.
    draining: bool = False
    #: When the instance that held its stream saw it close; None while it is connected or polling.
    disconnected_at: datetime | None = None
    #: Counts the writes of the record in this session. Only the store counts; an update must name the stored one.
    record_version: int = 0
    registered_at: datetime | None = None

    def serves(self, queue: str, skill: str) -> bool:
        """It takes tasks of this queue and has this skill."""
        return skill in self.skills and (self.queues is None or queue in self.queues)


class FreeSlots(Struct, frozen=True, omit_defaults=True, gc=False):
    """The free slots of one instance's workers of one class."""

    #: Any worker of the class.
    worker: Worker
    #: Workers with a free slot.
    workers: int
    #: Free slots of all of them.
    free: int
    #: Attempts held by the worker that has the fewest.
    held: int = 0
