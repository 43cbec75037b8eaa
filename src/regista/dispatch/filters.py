"""Filters: may this worker do what waits in this queue? Pure; they run once per queue and class."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from msgspec import Struct

from ..model import Gpu, Profile, QueueKey, Worker, match_options
from ..model.requirements import ANY, Constraint, Device, Requirements, read_requirements


class Mismatch(Struct, frozen=True):
    """One reason why a worker does not get a task, and what would change that."""

    code: str
    detail: str
    unblock: str


def first_mismatch(queue_key: QueueKey, worker: Worker) -> Mismatch | None:
    """The first reason against, or None: it may."""
    return next(mismatches(queue_key, worker), None)


def mismatches(queue_key: QueueKey, worker: Worker) -> Iterator[Mismatch]:
    """Every reason against."""
    if queue_key.type not in worker.skills:
        yield Mismatch(
            "skill_missing",
            f"has no skill {queue_key.type!r}",
            f"start a worker that has the skill {queue_key.type!r}",
        )
    if worker.queues is not None and queue_key.queue not in worker.queues:
        yield Mismatch(
            "queue_not_served",
            f"serves {_listed(worker.queues)} and not the queue {queue_key.queue!r}",
            f"start a worker with --queue {queue_key.queue}, or dispatch to another queue",
        )
    if queue_key.options or worker.profile.taints:
        yield from _unmet(queue_key, worker)


@lru_cache(maxsize=2048)
def requirements_of(queue_key: QueueKey) -> tuple[Requirements, list[str]]:
    """What the queue requires, read once for all workers; and what of it cannot be read."""
    return read_requirements(match_options(queue_key).requirements)


def _unmet(queue_key: QueueKey, worker: Worker) -> Iterator[Mismatch]:
    profile = worker.profile
    wanted, problems = requirements_of(queue_key)
    for problem in problems:
        yield Mismatch("requirement_unreadable", problem, "correct the requirements of dispatch_task")
    yield from _amounts(wanted, profile)
    yield from _devices(wanted, profile)
    yield from _installed("models", wanted.models, profile.models)
    yield from _installed("software", wanted.software, profile.software)
    yield from _place(wanted, profile)
    yield from _labels(wanted, worker)
    price, most = profile.cost_of(queue_key.type), match_options(queue_key).max_cost
    if most is not None and price > most:
        yield Mismatch(
            "max_cost",
            f"costs {price:g} per second, above max_cost {most:g}",
            f"raise max_cost to {price:g}, or start a cheaper worker",
        )


def _amounts(wanted: Requirements, profile: Profile) -> Iterator[Mismatch]:
    for name, least in wanted.at_least.items():
        if getattr(profile, name) < least:
            yield _requirement(name, f"has {name} {getattr(profile, name):g}, needs {least:g}")
    if profile.reputation < wanted.min_reputation:
        have = f"has a reputation of {profile.reputation:g}, needs {wanted.min_reputation:g}"
        yield _requirement("min_reputation", have)


def _installed(name: str, wanted: dict[str, str], have: dict[str, str]) -> Iterator[Mismatch]:
    missing = [
        f"{one} {version}" if version != ANY else one
        for one, version in wanted.items()
        if one not in have or (version != ANY and have[one] != version)
    ]
    if missing:
        yield _requirement(name, f"lacks {_listed(missing)}")


def _place(wanted: Requirements, profile: Profile) -> Iterator[Mismatch]:
    if wanted.zones and profile.zone not in wanted.zones:
        yield _requirement("zone", f"is in zone {profile.zone!r}, needs {_listed(wanted.zones)}")
    for taint in profile.taints:
        if not any(one in ("*", taint, taint.partition("=")[0]) for one in wanted.tolerations):
            yield Mismatch(
                "taint",
                f"has the taint {taint!r}, which the task does not tolerate",
                f"add {taint!r} to the tolerations of the task, or take the taint off the worker",
            )


def _labels(wanted: Requirements, worker: Worker) -> Iterator[Mismatch]:
    for key, value in wanted.affinity.items():
        have = worker_property(worker, key)
        if have != value and not (isinstance(value, list) and have in value):
            yield _requirement("affinity", f"has {key} {have!r}, needs {value!r}")
    for one in wanted.constraints:
        have = worker_property(worker, one.key)
        if not satisfies(one, have):
            yield _requirement("constraints", f"has {one.key} {have!r}, needs {one.op} {one.value!r}")
    for key, value in wanted.properties.items():
        have = worker_property(worker, key)
        if not suffices(have, value):
            yield _requirement("resources", f"has {key} {have!r}, needs {value!r}")


def _requirement(name: str, detail: str) -> Mismatch:
    return Mismatch(f"requirement_{name}", detail, f"start a worker that meets {name!r}, or ask for less")


# -- single questions ----------------------------------------------------------------------------


def worker_property(worker: Worker, key: str) -> Any:
    """A label or property of a worker; None when it has none of that name."""
    profile = worker.profile
    if key in profile.labels:
        return profile.labels[key]
    match key:
        case "cpu_cores" | "ram_gb" | "disk_gb" | "zone" | "type" | "reputation" | "cost_per_second":
            return getattr(profile, key)
        case "gpu_count":
            return len(profile.gpus)
        case "vram_gb":
            return max((gpu.vram_gb for gpu in profile.gpus), default=None)
        case "hostname" | "transport" | "id":
            return getattr(worker, key)
    return None


def satisfies(constraint: Constraint, have: Any) -> bool:
    """A missing label is unequal to everything, and neither above nor below anything."""
    value = constraint.value
    several = isinstance(have, list | tuple)
    match constraint.op:
        case "Eq":
            return bool(have == value or (several and value in have))
        case "Ne":
            return not (have == value or (several and value in have))
        case "Gt":
            return _is_number(have) and have > value
        case "Lt":
            return _is_number(have) and have < value
        case "In":
            return any(one in value for one in have) if several else have in value
        case "NotIn":
            return not (any(one in value for one in have) if several else have in value)
    return False


def suffices(have: Any, wanted: Any) -> bool:
    """The documents' rule: numbers at least, lists share a value, text is part of text, else equal."""
    if isinstance(wanted, dict) and isinstance(have, dict):
        return all(suffices(have.get(key), value) for key, value in wanted.items())
    if _is_number(wanted) and _is_number(have):
        return bool(have >= wanted)
    if isinstance(wanted, list | tuple):
        mine = have if isinstance(have, list | tuple) else [have]
        return any(one in mine for one in wanted)
    if isinstance(have, list | tuple):
        return wanted in have
    return bool(have == wanted)


def _devices(wanted: Requirements, profile: Profile) -> Iterator[Mismatch]:
    have = [*map(_as_device, profile.gpus), *_other_devices(profile)]
    used: set[int] = set()
    # The hardest to please chooses first: what fits nobody else is left for it.
    for device in sorted(wanted.devices, key=lambda one: sum(_fits(one, had) for had in have)):
        fits = [n for n, had in enumerate(have) if n not in used and _fits(device, had)]
        used.update(fits[: device.count])
        if len(fits) < device.count:
            name = "gpu" if device.type == "gpu" else "devices"
            yield _requirement(name, f"has {len(fits)} of {device.count} {_described(device)}")


def _as_device(gpu: Gpu) -> dict[str, Any]:
    return {"type": "gpu", "model": gpu.model, "properties": {"vram_gb": gpu.vram_gb}}


def _other_devices(profile: Profile) -> list[dict[str, Any]]:
    """What a worker lists under the label `devices` in the newer dialect; graphics cards are told apart."""
    listed = profile.labels.get("devices")
    rows = listed if isinstance(listed, list | tuple) else ()
    return [one for one in rows if isinstance(one, dict) and (one.get("type") != "gpu" or not profile.gpus)]


def _fits(device: Device, had: dict[str, Any]) -> bool:
    if had.get("type") != device.type or device.model.lower() not in str(had.get("model") or "").lower():
        return False
    facts = {**had, **(had.get("properties") or {})}
    return all(suffices(facts.get(key), value) for key, value in device.properties.items())


def _described(device: Device) -> str:
    more = [device.model] if device.model else []
    more += [f"{key} {value}" for key, value in device.properties.items()]
    return " ".join([device.type, *more])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(words: Any) -> str:
    return ", ".join(repr(word) for word in words) or "nothing"
