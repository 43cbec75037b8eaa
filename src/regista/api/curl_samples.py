"""A `curl` call for each operation, for the page and for the OpenAPI document."""

import re
import shlex
from typing import Any

import msgspec

from .routes import Media, Operation

#: What stands in a sample where the path has a parameter.
_NAMES = {
    "job_id": "JOB",
    "worker_id": "WORKER",
    "name": "BLUEPRINT",
    "schedule": "SCHEDULE",
    "delivery_id": "DELIVERY",
    "file": "FILE",
    "sha256": "SHA256",
}
_TOKEN = '-H "X-Client-Token: $CLIENT_TOKEN"'

#: Operation → what stands in its query.
QUERIES = {
    "jobs_create": "wait=30",
    "jobs_find": "status=quarantined&limit=20",
    "jobs_get": "wait=30",
    "jobs_approve_by_token": "token=TOKEN",
    "streams_all_events": "after=0",
    "blueprints_graph": "format=svg",
    "webhooks_find": "state=dead",
    "schedules_coming": "count=5",
    "audit_find": "action=worker.drain",
}
#: Operation → its body.
BODIES: dict[str, Any] = {
    "jobs_create": {"blueprint": "BLUEPRINT", "input": {"name": "Ada"}},
    "jobs_create_batch": {"jobs": [{"blueprint": "BLUEPRINT"}, {"blueprint": "BLUEPRINT", "priority": 1}]},
    "jobs_wait_for_any": {"ids": ["JOB", "ANOTHER"], "timeout": 30},
    "jobs_cancel": {"reason": "not needed any more"},
    "jobs_approve": {"decision": "approve", "comment": "looks good"},
    "jobs_approve_by_token": {"decision": "approve"},
    "jobs_release": {"data": {"name": "Ada"}},
    "jobs_retry": {},
    "jobs_fail": {"reason": "cannot be mended"},
    "jobs_fork": {"input": {"name": "Bob"}},
    "files_create": {"name": "FILE"},
    "workers_drain": {"on": True},
    "schedules_create": {"name": "SCHEDULE", "blueprint": "BLUEPRINT", "cron": "30 7 * * mon-fri"},
    "schedules_pause": {"reason": "holidays"},
    "schedules_resume": {},
    "schedules_trigger": {},
    "schedules_delete": {},
    "webhooks_redeliver": {},
    "webhooks_discard": {},
    "tokens_make_password": {"worker_id": "WORKER"},
    "tokens_revoke": {"worker_id": "WORKER"},
}


def curl_command(operation: Operation) -> str:
    """The operation as a call of curl; `$REGISTA_URL` is where, `$CLIENT_TOKEN` who asks."""
    path = re.sub(r"{(\w+)}", lambda found: _NAMES[found[1]], operation.paths()[0])
    query = QUERIES.get(operation.id)
    words = ["curl"]
    if any(isinstance(one, Media) and "text/event-stream" in one.types for one in operation.answers.values()):
        words.append("-N")  # as it comes
    words.append(f'"$REGISTA_URL{path}{"?" + query if query else ""}"')
    if operation.kind == "client":
        words.append(_TOKEN)
    body = BODIES.get(operation.id)
    if body is not None:
        words.append(f"-d {shlex.quote(msgspec.json.encode(body).decode())}")
    return " ".join(words)
