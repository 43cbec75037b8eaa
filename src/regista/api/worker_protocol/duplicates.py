"""Detects two processes with one worker id, and names both, so that each can be given its own.

A worker that was started again before its old connection was known to be dead looks the same, once.
"""

import logging

from ...model import Worker
from ...serialization import safe_text

log = logging.getLogger("regista.workers")


def duplicate_worker(
    newer: Worker | None, session: int, incarnation: str, instance: str, address: str = ""
) -> str:
    """Describe the process that has taken the id of this session; empty if there is none, or it is the same process.

    `instance` is this instance; `address` is where the newer process was last seen, if not where it registered from.
    """
    if newer is None or newer.session <= session or (incarnation and newer.incarnation == incarnation):
        return ""
    host = f" ({newer.hostname})" if newer.hostname else ""
    there = "" if newer.instance == instance else f", at instance {newer.instance}"
    return safe_text(f"{address or newer.address or 'an unknown address'}{host}{there}")


def warn_duplicate_worker(worker_id: str, newer: str, address: str) -> None:
    """Log both processes."""
    log.warning(
        "worker %s has connected from %s while it was connected from %s: of two workers with one id only the newer "
        "gets tasks; give each its own WORKER_ID",
        worker_id,
        newer,
        address,
        extra={"action": "worker_displaced", "worker_id": worker_id},
    )
