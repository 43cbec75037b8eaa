"""The messages of the worker protocol, as they travel.

One record per message holds the members of both stock generations and our own. Nobody sends all of them:
what is missing is None. `dialects` makes of each what the orchestrator works with.

OLD is avtomatika-worker 1.0b7, NEW is 1.0b20, *ours* is `regista.worker`.
"""

import re
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")


#: The protocol that we speak; a worker is answered with its own version, since it warns of any other.
PROTOCOL_VERSION = "1.0b17"
#: Says which version of the protocol a worker speaks; comes back with every answer.
VERSION_HEADER = "X-RXON-Version"
TOKEN_HEADER = "X-Worker-Token"
ID_HEADER = "X-Worker-ID"

_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,128}")
#: Task types of ours may have dots and colons, too; a comma would split the list in a poll.
_SKILL = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class BadMessage(ValueError):
    """A message that cannot be decoded. Nothing of it was acted on; the text says where it is wrong."""


def decode_message(body: bytes, kind: type[T]) -> T:
    """The JSON `body` as a record, or BadMessage. Unknown members are ignored."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadMessage(str(error) or "nested too deep") from error


def check_identifier(what: str, name: str) -> str:
    """The name, if it is one."""
    if not _IDENTIFIER.fullmatch(name):
        raise BadMessage(f"{what}: expected 1 to 128 letters, digits, _ or -, got {name[:200]!r}")
    return name


def check_skill(name: str) -> str:
    """The name of a skill, if it is one."""
    if not _SKILL.fullmatch(name):
        raise BadMessage(f"skill: expected 1 to 128 letters, digits or _ - . : got {name[:200]!r}")
    return name


def registers_again(version: str | None) -> bool:
    """Whether an SDK of this protocol version registers anew when a heartbeat of its is answered 404.

    1.0b17 does, at once and with everything that it has. 1.0b3 registers once in its life.
    """
    number = re.fullmatch(r"1\.0b(\d+)", version or "")
    return number is not None and int(number[1]) > 3


class Security(Struct, frozen=True, gc=False):
    """Who signed a message."""

    signature: str | None = None
    signer_id: str | None = None


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """What every message of a worker may carry."""

    worker_id: str | None = None
    #: Seconds of the worker's own clock. NEW
    timestamp: float | None = None
    #: NEW
    security: Security | None = None


class Skill(Struct, frozen=True, gc=False):
    """A skill with what belongs to it. NEW; OLD and ours send the name alone."""

    name: str
    input_schema: dict[str, Any] | None = None


class GpuInfo(Struct, frozen=True, gc=False):
    """A graphics card. OLD sends one as `gpu_info`, ours a list as `gpus`."""

    model: str | None = None
    vram_gb: float | None = None


class Device(Struct, frozen=True, gc=False):
    """A piece of hardware. NEW"""

    type: str
    model: str | None = None
    properties: dict[str, Any] | None = None


class Resources(Struct, frozen=True, kw_only=True, gc=False):
    """What a worker has."""

    #: OLD and ours
    max_concurrent_tasks: int | None = None
    cpu_cores: float | None = None
    gpu_info: GpuInfo | None = None
    #: Ours
    ram_gb: float | None = None
    disk_gb: float | None = None
    gpus: list[GpuInfo] | None = None
    #: NEW
    devices: list[Device] | None = None
    properties: dict[str, Any] | None = None


class Installed(Struct, frozen=True, gc=False):
    """A model (OLD, ours) or an artifact (NEW) that a worker has on its disk."""

    name: str
    version: str | None = None


class Capabilities(Struct, frozen=True, kw_only=True, gc=False):
    """Where a worker runs, what it costs, and whatever its owner wanted to say."""

    hostname: str | None = None
    ip_address: str | None = None
    cost_per_skill: dict[str, float] | None = None
    #: OLD and NEW say so in `extra`; their documents say so here.
    websockets: bool | None = None
    extra: dict[str, Any] | None = None


class Registration(Message, frozen=True, kw_only=True, gc=False):
    """POST /_worker/workers/register"""

    worker_id: str
    worker_type: str | None = None
    supported_skills: list[Skill | str] | None = None
    #: Those that can be started right now; None is all. NEW
    available_skills: list[str] | None = None
    hot_skills: list[str] | None = None
    resources: Resources | None = None
    installed_software: dict[str, Any] | None = None
    #: OLD and ours
    installed_models: list[Installed] | None = None
    #: NEW
    installed_artifacts: list[Installed] | None = None
    capabilities: Capabilities | None = None
    # Ours:
    #: The attempts that still run. Stock workers do not say: None is not [].
    current_tasks: list[str] | None = None
    #: The store that gave them.
    cluster_id: str | None = None
    #: Names the process: another one with the same id is another worker.
    incarnation: str | None = None
    queues: list[str] | None = None
    labels: dict[str, Any] | None = None
    taints: list[str] | None = None
    zone: str | None = None
    cost_per_second: float | None = None
    #: Tasks at once, by skill.
    limits: dict[str, int] | None = None
    #: JSON schema of the params, by skill.
    schemas: dict[str, Any] | None = None


class Heartbeat(Message, frozen=True, kw_only=True, gc=False):
    """PATCH /_worker/workers/{id}"""

    status: str | None = None
    current_tasks: list[str] | None = None
    #: OLD: what can be started right now. NEW: everything it can do, when that has changed.
    supported_skills: list[Skill | str] | None = None
    #: NEW
    available_skills: list[str] | None = None
    #: Models in memory. OLD
    hot_cache: list[str] | None = None
    hot_skills: list[str] | None = None
    #: NEW
    skills_hash: str | None = None
    #: The session that registration gave, and the name of the process. Ours
    session: int | None = None
    incarnation: str | None = None


class ResultError(Struct, frozen=True, gc=False):
    """What went wrong with a task."""

    code: str | None = None
    message: str | None = None
    details: Any = None


class Result(Message, frozen=True, kw_only=True, gc=False):
    """POST /_worker/tasks/result"""

    job_id: str
    task_id: str
    status: str | None = None
    data: Any = None
    error: ResultError | str | None = None
    #: `execution_time_seconds` among them. NEW
    costs: dict[str, Any] | None = None
    #: Ours
    started_at: datetime | None = None


class WorkerEvent(Message, frozen=True, kw_only=True, gc=False):
    """POST /_worker/events, or over the socket. NEW and ours by `event_type`; OLD by `event`."""

    event_type: str | None = None
    payload: dict[str, Any] | None = None
    origin_task_id: str | None = None
    target_task_id: str | None = None
    # OLD:
    event: str | None = None
    task_id: str | None = None
    progress: float | None = None
    message: str | None = None
