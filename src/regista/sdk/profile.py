"""Profile: a worker as the orchestrator knows it, from what its code, its settings and its machine say."""

import re
import socket
import uuid
from typing import Any

from ..config import WorkerConfig
from ..model import Worker as Record
from ..model.worker import Profile
from .resources import detect_resources
from .tasks import Worker

#: What an id may not hold becomes this.
_ODD = re.compile(r"[^A-Za-z0-9_-]+")
_NO_CONFIG = WorkerConfig()


def build_worker_record(worker: Worker, worker_id: str, config: WorkerConfig = _NO_CONFIG) -> Record:
    """The worker's record. The operator's word (settings) wins for how much and which queues; for the
    rest the code wins, and labels, software, models and prices are joined.
    """
    here = detect_resources()
    return Record(
        id=worker_id,
        skills=tuple(worker.skills),
        queues=tuple(config.queues) or worker.queues,
        capacity=config.max_concurrent_tasks or worker.concurrency,
        limits=worker.limits,
        schemas=worker.schemas,
        hostname=socket.gethostname(),
        profile=Profile(
            type=worker.type or config.worker_type,
            cpu_cores=here.cpu_cores,
            ram_gb=here.ram_gb,
            disk_gb=here.disk_gb,
            gpus=here.gpus,
            software={**config.installed_software, **worker.software},
            models={**_models(config.installed_models), **worker.models},
            hot=worker.hot,
            labels={**config.labels, **worker.labels},
            taints=worker.taints,
            zone=worker.zone or config.zone,
            cost_per_second=worker.cost_per_second or config.cost_per_second,
            cost_per_skill={**config.cost_per_skill, **worker.cost_per_skill},
        ),
    )


def _models(listed: list[Any]) -> dict[str, str]:
    """INSTALLED_MODELS is a list of names, or of {"name", "version"}."""
    named = [model if isinstance(model, dict) else {"name": model} for model in listed]
    return {str(model.get("name", "")): str(model.get("version", "")) for model in named}


def choose_worker_id(worker: Worker, config: WorkerConfig, alone: bool = True) -> str:
    """The configured id (with the worker's name behind it where several share it), or one made up."""
    if config.worker_id:
        chosen = config.worker_id if alone else f"{config.worker_id}-{worker.name}"
    else:
        chosen = f"{socket.gethostname()}-{worker.name}-{uuid.uuid4().hex[:8]}"
    return _ODD.sub("-", chosen)[-128:]


def registration_body(
    record: Record, running: list[str], cluster_id: str, websockets: bool
) -> dict[str, Any]:
    """The body of `POST /_worker/workers/register`: what stock workers send, and our own members."""
    profile = record.profile
    return {
        "worker_id": record.id,
        "worker_type": profile.type,
        "supported_skills": list(record.skills),
        "hot_skills": list(profile.hot),
        "resources": {
            "max_concurrent_tasks": record.capacity,
            "cpu_cores": profile.cpu_cores,
            "ram_gb": profile.ram_gb,
            "disk_gb": profile.disk_gb,
            "gpus": [{"model": gpu.model, "vram_gb": gpu.vram_gb} for gpu in profile.gpus],
        },
        "installed_software": profile.software,
        "installed_models": [{"name": n, "version": v} for n, v in profile.models.items()],
        "capabilities": {
            "hostname": record.hostname,
            "ip_address": "",
            "cost_per_skill": profile.cost_per_skill,
            "extra": {"websockets": websockets},
        },
        "current_tasks": running,
        "queues": None if record.queues is None else list(record.queues),
        "labels": profile.labels,
        "taints": list(profile.taints),
        "zone": profile.zone,
        "cost_per_second": profile.cost_per_second,
        "limits": record.limits,
        "schemas": record.schemas,
        "cluster_id": cluster_id,
        "incarnation": record.incarnation,
    }
