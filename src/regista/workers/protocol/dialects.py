"""What the messages of workers mean, whatever generation they come from. Nothing behind this knows dialects."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from msgspec import Struct

from ...model import Gpu, Profile, Task, TaskFailure, TaskResult, Worker
from .messages import (
    BadMessage,
    Device,
    GpuInfo,
    Heartbeat,
    Installed,
    Registration,
    Resources,
    Result,
    Skill,
    WorkerEvent,
    check_identifier,
    check_skill,
)
from .signing import sign

#: Of a worker that does not say how many tasks it does at once, each open poll says that it has room for one.
UNKNOWN_CAPACITY = 10_000
#: Longer lists are a mistake, or worse.
MAX_SKILLS = 10_000
#: Members of a task that the stock SDK knows; the signature covers these and no others.
_SIGNED = frozenset(
    {"job_id", "task_id", "type", "params", "tracing_context", "priority", "deadline", "timestamp", "step"}
)
#: Word of the wire → what it means for us.
_PROGRESS = ("progress", "progress_update")


# -- coming in -------------------------------------------------------------------------------------------


class HeartbeatReport(Struct, frozen=True, kw_only=True):
    """What a heartbeat says."""

    #: idle, busy, full, draining or offline.
    status: str = "idle"
    #: The attempts that run; None when it does not say.
    running: tuple[str, ...] | None = None
    #: Everything it can do, when it says so.
    skills: tuple[str, ...] | None = None
    #: What it can start right now, when it says so.
    available: tuple[str, ...] | None = None
    hot: tuple[str, ...] | None = None
    session: int | None = None


class ProgressReport(Struct, frozen=True, kw_only=True):
    """How far an attempt is."""

    attempt_id: str
    value: float | None = None
    message: str = ""
    checkpoint: Any = None


def to_worker(said: Registration, lease_s: float) -> Worker:
    """The worker that registers, with everything that it can do."""
    resources = said.resources or Resources()
    return Worker(
        id=check_identifier("worker_id", said.worker_id),
        skills=skills_of(said.supported_skills or ()),
        queues=None if said.queues is None else tuple(said.queues),
        capacity=_capacity(resources.max_concurrent_tasks),
        limits=_limits(said.limits or {}),
        profile=_profile(said, resources),
        schemas=_schemas(said),
        transport="poll",
        hostname=(said.capabilities.hostname or "") if said.capabilities is not None else "",
        incarnation=said.incarnation or "",
        lease_s=lease_s,
    )


def unregistered_worker(
    worker_id: str, skills: tuple[str, ...], hot: tuple[str, ...], lease_s: float
) -> Worker:
    """A worker that we know by a poll or a heartbeat only, since we were away when it registered."""
    return Worker(
        id=worker_id,
        skills=skills,
        capacity=UNKNOWN_CAPACITY,
        profile=Profile(hot=hot),
        transport="poll",
        lease_s=lease_s,
    )


def to_heartbeat(said: Heartbeat) -> HeartbeatReport:
    """What a heartbeat says; the two generations mean different things by `supported_skills`."""
    told = said.supported_skills
    by_name = told is not None and all(isinstance(skill, str) for skill in told) and said.skills_hash is None
    names = None if told is None else skills_of(told)
    available = None if said.available_skills is None else skills_of(said.available_skills)
    status = (said.status or "idle").lower()
    if available is None:
        available = names if by_name else () if status in ("busy", "full") else None
    hot = None
    if said.hot_skills is not None or said.hot_cache is not None or said.skills_hash is not None:
        hot = _names([*(said.hot_skills or ()), *(said.hot_cache or ())])
    return HeartbeatReport(
        status=status,
        running=None if said.current_tasks is None else tuple(said.current_tasks),
        skills=None if by_name else names,
        available=available,
        hot=hot,
        session=said.session,
    )


def to_result(said: Result, worker_id: str, now: datetime) -> TaskResult:
    """A result."""
    error = said.error
    if error is None:
        failure: TaskFailure | None = None
    elif isinstance(error, str):
        failure = TaskFailure("TRANSIENT_ERROR", error)
    else:
        failure = TaskFailure(error.code or "TRANSIENT_ERROR", error.message or "", error.details)
    return TaskResult(
        task_id=said.task_id,
        job_id=said.job_id,
        worker_id=worker_id,
        status=said.status or None,
        data=said.data,
        error=failure,
        started_at=_began(said, now),
    )


def to_progress(said: WorkerEvent) -> ProgressReport | None:
    """The progress that an event tells; None for any other event."""
    if said.event in _PROGRESS:
        attempt, payload = said.task_id, {"progress": said.progress, "message": said.message}
    elif said.event_type in _PROGRESS:
        attempt, payload = said.target_task_id or said.origin_task_id, said.payload or {}
    elif said.event is None and said.event_type is None:
        raise BadMessage("expected an event with `event_type`, got none")
    else:
        return None
    if not attempt:
        raise BadMessage("expected the task that the progress is of, in `target_task_id`; got none")
    value, message = payload.get("progress"), payload.get("message")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise BadMessage(f"progress: expected a number from 0 to 1, got {type(value).__name__}")
    return ProgressReport(
        attempt_id=attempt,
        # Bounded before it becomes a float: an integer of 400 digits would not fit into one.
        value=None if value is None else float(min(1, max(0, value))),
        message="" if message is None else str(message),
        checkpoint=payload.get("checkpoint"),
    )


def skills_of(told: Iterable[Skill | str]) -> tuple[str, ...]:
    """The names, each once, in order."""
    names = tuple(dict.fromkeys(skill if isinstance(skill, str) else skill.name for skill in told))
    if len(names) > MAX_SKILLS:
        raise BadMessage(f"skills: expected at most {MAX_SKILLS}, got {len(names)}")
    return tuple(check_skill(name) for name in names)


# -- going out -------------------------------------------------------------------------------------------


def task_message(task: Task, now: datetime, secret: str = "") -> dict[str, Any]:
    """A task as both generations read it, and what ours reads beyond that. Signed where there is a secret."""
    members: dict[str, Any] = {
        "job_id": task.job_id,
        "task_id": task.attempt_id,
        "type": task.type,
        "params": task.params,
        "tracing_context": task.trace,
        "params_metadata": None,
        "priority": task.priority,
        "timestamp": int(now.timestamp()),
        "step": _visit(task.id),
        "stable_task_id": task.id,
        "attempt": task.attempt,
        "checkpoint": task.checkpoint,
    }
    if (deadline := task.deadline) is not None:
        members["deadline"] = int(deadline.timestamp())
    if secret:
        members["sig"] = sign(_as_read(members), secret)
    return members


def _as_read(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members as the stock SDK has them when it checks: only those it knows, and no `step` of 0."""
    return {name: value for name, value in members.items() if name in _SIGNED and (name != "step" or value)}


# -- the parts -------------------------------------------------------------------------------------------


def _capacity(told: int | None) -> int:
    if told is None:
        return UNKNOWN_CAPACITY
    if not 1 <= told <= UNKNOWN_CAPACITY:
        raise BadMessage(f"max_concurrent_tasks: expected 1 to {UNKNOWN_CAPACITY}, got {told}")
    return told


def _limits(told: Mapping[str, int]) -> dict[str, int]:
    for skill, limit in told.items():
        if limit < 1:
            raise BadMessage(f"limits: expected at least 1 for {skill!r}, got {limit}")
    return dict(told)


def _profile(said: Registration, resources: Resources) -> Profile:
    capabilities = said.capabilities
    # NEW keeps its numbers in `properties`; what is not a number of ours is a label like any other.
    properties = dict(resources.properties or {})
    numbers = {name: _number(properties.pop(name, None)) for name in ("cpu_cores", "ram_gb", "disk_gb")}
    extra = dict(capabilities.extra or {}) if capabilities is not None else {}
    extra.pop("websockets", None)  # says how it can be reached, nothing about what it can do
    return Profile(
        type=said.worker_type or "",
        cpu_cores=resources.cpu_cores or numbers["cpu_cores"],
        ram_gb=resources.ram_gb or numbers["ram_gb"],
        disk_gb=resources.disk_gb or numbers["disk_gb"],
        gpus=tuple(_gpus(resources)),
        software={name: str(version) for name, version in (said.installed_software or {}).items()},
        models=_versions([*(said.installed_models or ()), *(said.installed_artifacts or ())]),
        hot=_names(said.hot_skills or ()),
        labels={**properties, **extra, **(said.labels or {})},
        taints=tuple(said.taints or ()),
        zone=said.zone or "",
        cost_per_second=_price("cost_per_second", said.cost_per_second or 0.0),
        cost_per_skill=_prices((capabilities.cost_per_skill if capabilities is not None else None) or {}),
    )


def _gpus(resources: Resources) -> Iterable[Gpu]:
    for card in (*(resources.gpus or ()), *([resources.gpu_info] if resources.gpu_info else [])):
        yield _gpu(card)
    for device in resources.devices or ():
        if device.type.lower() == "gpu":
            yield _gpu_device(device)


def _gpu(card: GpuInfo) -> Gpu:
    return Gpu(card.model or "", card.vram_gb or 0.0)


def _gpu_device(device: Device) -> Gpu:
    properties = device.properties or {}
    # The SDK itself says `memory_gb`; people who write WORKER_DEVICES by hand say `vram_gb`.
    return Gpu(device.model or "", _number(properties.get("vram_gb") or properties.get("memory_gb")))


def _schemas(said: Registration) -> dict[str, Any]:
    told = {
        skill.name: skill.input_schema
        for skill in said.supported_skills or ()
        if isinstance(skill, Skill) and skill.input_schema is not None
    }
    return {**told, **(said.schemas or {})}


def _versions(things: Iterable[Installed]) -> dict[str, str]:
    return {thing.name: thing.version or "unknown" for thing in things}


def _prices(told: Mapping[str, float]) -> dict[str, float]:
    return {skill: _price(f"cost_per_skill of {skill!r}", price) for skill, price in told.items()}


def _price(what: str, price: float) -> float:
    if not (isfinite(price) and price >= 0):
        raise BadMessage(f"{what}: expected 0 or more, got {price}")
    return price


def _names(told: Iterable[str]) -> tuple[str, ...]:
    # Sorted: two workers that are warm alike belong to one class, in whatever order they say it.
    return tuple(sorted(dict.fromkeys(told)))


def _number(value: Any) -> float:
    """The number, or 0 for anything that is none, is endless, or does not fit into a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if isfinite(number) else 0.0


def _began(said: Result, now: datetime) -> datetime | None:
    """When the attempt began. The stock SDK says how long it took, which needs no comparison of clocks."""
    if said.started_at is not None and said.started_at.tzinfo is not None:
        return min(said.started_at, now)
    if said.costs is None:
        return None
    took_s = _number(said.costs.get("execution_time_seconds"))
    return now - timedelta(seconds=took_s) if 0 < took_s < 10**9 else None


def _visit(task_id: str) -> int:
    """How many states the job had entered when it dispatched the task; it stands in the task's id."""
    parts = task_id.rsplit("_", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0
