"""Wardrobe: what a simulated worker must wear to be given a task."""

import asyncio
from typing import TYPE_CHECKING, Any

from ..dispatch.filters import first_mismatch
from ..model import Gpu, Profile, QueueKey, match_options
from ..model.requirements import ANY, Constraint, Device, read_requirements
from .storage_view import StorageView

if TYPE_CHECKING:
    from .world import World

_Facts = dict[str, Any]


async def dress(world: "World") -> None:
    """Where nobody fits what waits, somebody changes into who does: whatever a script asks for is there."""
    turn = 0
    while not world.over:
        await asyncio.sleep(1.0)
        for queue_key in StorageView(world.store).lanes():
            if world.performers and all(first_mismatch(queue_key, one.record) for one in world.performers):
                turn += 1
                await world.performers[turn % len(world.performers)].dress(profile_for(queue_key))


def profile_for(queue_key: QueueKey) -> Profile:
    """The smallest profile that meets all that the lane asks for, where anything can."""
    needs = match_options(queue_key)
    wanted, _ = read_requirements(needs.requirements)
    labels: _Facts = {key: _first(value) for key, value in wanted.affinity.items()}
    labels |= {key: _first(value) for key, value in wanted.properties.items()}
    for constraint in wanted.constraints:
        _obey(labels, constraint)
    others = [_device(one) for one in wanted.devices if one.type != "gpu" for _ in range(one.count)]
    if others:
        labels["devices"] = others
    return Profile(
        gpus=tuple(_gpu(one) for one in wanted.devices if one.type == "gpu" for _ in range(one.count)),
        models={name: "1" if version == ANY else version for name, version in wanted.models.items()},
        software={name: "1" if version == ANY else version for name, version in wanted.software.items()},
        zone=wanted.zones[0] if wanted.zones else "",
        labels=labels,
        cpu_cores=wanted.at_least.get("cpu_cores", 0.0),
        ram_gb=wanted.at_least.get("ram_gb", 0.0),
        disk_gb=wanted.at_least.get("disk_gb", 0.0),
    )


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _obey(labels: _Facts, constraint: Constraint) -> None:
    match constraint.op:
        case "Eq":
            labels[constraint.key] = constraint.value
        case "In":
            labels[constraint.key] = _first(constraint.value)
        case "Gt":
            labels[constraint.key] = constraint.value + 1
        case "Lt":
            labels[constraint.key] = constraint.value - 1


def _gpu(device: Device) -> Gpu:
    return Gpu(device.model or "any", float(device.properties.get("vram_gb", 0.0)))


def _device(device: Device) -> _Facts:
    return {"type": device.type, "model": device.model, "properties": dict(device.properties)}
