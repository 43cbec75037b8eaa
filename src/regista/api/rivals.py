"""Rivals: two processes with one worker's id. Both are told of, so that somebody can give each its own.

One that was started again, before its old connection was known to be dead, looks the same, once.
"""

import logging

from ..model import Worker
from ..serialization import safe_text

log = logging.getLogger("regista.workers")


def rival_of(newer: Worker | None, session: int, incarnation: str, instance: str, address: str = "") -> str:
    """Who has taken the id of this session, in words; empty when nobody has, or the same process has.

    `instance` is ours, and `address` where the newer one was last seen, if that is not where it registered from.
    """
    if newer is None or newer.session <= session or (incarnation and newer.incarnation == incarnation):
        return ""
    host = f" ({newer.hostname})" if newer.hostname else ""
    there = "" if newer.instance == instance else f", at instance {newer.instance}"
    return safe_text(f"{address or newer.address or 'an address that nobody knows'}{host}{there}")


def warn_of_two(worker_id: str, rival: str, address: str) -> None:
    """Name both in the log."""
    log.warning(
        "worker %s has come from %s while it was connected from %s: of two workers with one id only the newer gets "
        "tasks; give each its own WORKER_ID",
        worker_id,
        rival,
        address,
        extra={"action": "worker_displaced", "worker_id": worker_id},
    )
