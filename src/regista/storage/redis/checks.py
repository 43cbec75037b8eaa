"""What the server must be like for jobs to be safe with it. ServerRefusal at the start, in plain words."""

import logging
import re

from ...errors import StorageError
from .line import ServerRefusal
from .link import Link, info_of

log = logging.getLogger("regista.storage")

#: The oldest server that can do all that the scripts ask for.
OLDEST = 7


async def check_server(link: Link, prefix: str) -> None:
    """Raise StorageError when the server is not fit; warn when it forgets everything at a restart."""
    info = info_of((await link.ask(("INFO",)))[0])
    version = info.get("redis_version", "0")
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < OLDEST:
        raise StorageError(f"expected Redis {OLDEST} or newer, or Valkey; got {version}: upgrade the server")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StorageError(
            f"expected maxmemory-policy noeviction, got {policy}: under pressure the server would throw jobs "
            "away; set it with CONFIG SET maxmemory-policy noeviction and in its configuration file"
        )
    if info.get("aof_enabled") != "1":
        log.warning(
            "the server's append-only file is off: a restart of it loses jobs that were acknowledged "
            "(`appendonly yes`, and `appendfsync always` to lose nothing at all)",
            extra={"action": "storage_not_durable"},
        )
    await _try_rights(link, prefix)


async def _try_rights(link: Link, prefix: str) -> None:
    """Write and publish once where everything else will be: what is forbidden shows now, not with the first job."""
    probe = "redis.call('SET', KEYS[1] .. 'probe', 1, 'PX', 1) redis.call('PUBLISH', KEYS[1] .. 'probe', '') return 1"
    try:
        await link.ask(("EVAL", probe, 1, prefix))
    except ServerRefusal as refused:
        raise StorageError(why_not(str(refused), prefix)) from None


def why_not(words: str, prefix: str) -> str:
    """What the server's refusal of the probe means, and what to do."""
    moved = re.search(r"MOVED \d+ (\S+)|MovedError.* (\S+:\d+)", words)
    if moved:
        return (
            f"this node of the cluster does not hold our keys ({prefix}*); they all live on one, "
            f"so name that in the URL: {moved[1] or moved[2]}"
        )
    return (
        f"the user of the URL lacks a right; it needs ~{prefix}* &{prefix}* +@all -@admin -@dangerous "
        f"+info +script: {words}"
    )
