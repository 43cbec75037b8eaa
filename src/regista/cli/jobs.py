"""`regista jobs …`: start jobs, look at them, and decide about them."""

import argparse
from datetime import datetime
from typing import Any

from ..client import Client
from ..schemas.jobs import AttemptErrorView, JobObject
from . import exits
from .calls import attributes_in, client_for, maybe_object_in, object_in
from .follow import follow, stream
from .output import Screen, age, screen_for, shown, span
from .refusals import UsageError
from .story import EventLines
from .timeline import draw


async def run(asked: argparse.Namespace) -> int:
    """Start a job; with --wait, follow it to its end."""
    _check_waiting(asked)
    body = object_in("--input", asked.input)
    attributes = attributes_in("--attribute", asked.attribute)
    async with client_for(asked) as client:
        job = await client.submit(
            asked.blueprint,
            body,
            idempotency_key=asked.key,
            priority=asked.priority,
            dispatch_timeout_s=asked.dispatch_timeout,
            result_timeout_s=asked.result_timeout,
            webhook_url=asked.webhook,
            search_attributes=attributes or None,
        )
        return await _started(client, screen_for(asked), job, asked)


async def fork(asked: argparse.Namespace) -> int:
    """Start a new job like an old one."""
    _check_waiting(asked)
    body = maybe_object_in("--input", asked.input)
    async with client_for(asked) as client:
        job = await client.fork(asked.job_id, body)
        return await _started(client, screen_for(asked), job, asked)


def _check_waiting(asked: argparse.Namespace) -> None:
    if asked.timeout is not None and not asked.wait:
        raise UsageError("--timeout: bounds --wait, and there is none; add --wait, or leave it out")


async def _started(client: Client, screen: Screen, job: JobObject, asked: argparse.Namespace) -> int:
    if asked.wait and screen.json:
        # The job itself is the answer, so nobody needs to be shown its way.
        return _ended(screen, await client.wait(job.id, asked.timeout))
    if asked.wait:
        return _ended(screen, await follow(client, screen, job.id, asked.timeout, screen.note))
    if screen.json:
        screen.document(job)
    else:
        screen.say(job.id)
    return exits.OK


async def watch(asked: argparse.Namespace) -> int:
    """Follow a job to its end; the exit code mirrors it."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        if screen.json:
            job = await stream(client, screen, asked.job_id, asked.timeout)
            return exits.of_status(job.status)
        return _ended(screen, await follow(client, screen, asked.job_id, asked.timeout, screen.say))


def _ended(screen: Screen, job: JobObject) -> int:
    """Say how it ended, or how it stands."""
    code = exits.of_status(job.status)
    if screen.json:
        screen.document(job)
        return code
    spent = age(job.created_at, job.finished_at)
    screen.say(f"{job.status}  {job.id}  {job.blueprint}  {spent}")
    if job.error is not None:
        screen.say(f"{job.error.code}: {job.error.message}")
    if job.status == "finished" or job.result is not None:
        screen.say(shown(job.result))
    if hint := _hint(job, code):
        screen.note(hint)
    return code


def _hint(job: JobObject, code: int) -> str:
    if code == exits.QUARANTINED:
        return f"mend what is wrong, then `regista jobs retry {job.id}`; or `regista jobs fail {job.id}`"
    if code == exits.TIMED_OUT:
        return f"the time is up, the job goes on; `regista jobs watch {job.id}` follows it"
    return _elsewhere(job)


def _elsewhere(job: JobObject) -> str:
    """How to read what is too large to be shown."""
    for value in (job.result, *job.data.values(), *job.input.values()):
        told = value.get("$offloaded") if isinstance(value, dict) and len(value) == 1 else None
        if isinstance(told, dict) and "sha256" in told:
            return f"too large to be shown: `regista jobs show {job.id} --value {told['sha256']}` writes it whole"
    return ""


async def listing(asked: argparse.Namespace) -> int:
    """The newest jobs that fit."""
    screen = screen_for(asked)
    found: list[JobObject] = []
    async with client_for(asked) as client:
        page = min(asked.limit + 1, 100)  # one more than is shown: then we know whether there are more
        async for job in client.jobs(
            query=asked.query, status=asked.status, blueprint=asked.blueprint, page=page
        ):
            found.append(job)
            if len(found) > asked.limit:
                break
        whose = not screen.json and bool((await client.me()).get("operator"))
    more, found = len(found) > asked.limit, found[: asked.limit]
    if screen.json:
        screen.document({"items": found, "more": more})
        return exits.OK
    columns = ["id", "blueprint", "status", "state", "age", *(["client"] if whose else [])]
    screen.table(columns, [_row(job)[: len(columns)] for job in found], _no_jobs(asked))
    if more:
        screen.note("there are more; --limit N shows more of them, --query and --status fewer")
    return exits.OK


def _row(job: JobObject) -> list[str]:
    return [job.id, job.blueprint, job.status, job.state, age(job.created_at), str(job.client or "-")]


def _no_jobs(asked: argparse.Namespace) -> str:
    if asked.query or asked.status or asked.blueprint:
        return "no job fits; `regista jobs list` shows those of every status and blueprint"
    return "no jobs yet; `regista jobs run BLUEPRINT --input JSON` starts one"


async def count(asked: argparse.Namespace) -> int:
    """How many jobs fit, and how long they took."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        tally = await client.count(
            asked.query, asked.by, status=asked.status, blueprint=asked.blueprint, limit=asked.limit
        )
    if screen.json:
        screen.document(tally)
        return exits.OK
    groups = [[_group(group["value"]), *_figures(group)] for group in tally["groups"]]
    rows = [*groups, ["all", *_figures(tally)]]
    screen.table([asked.by or "jobs", "count", "mean", "p50", "p95"], rows)
    return exits.OK


def _group(value: object) -> str:
    return "-" if value is None else value if isinstance(value, str) else shown(value)


def _figures(tally: dict[str, Any]) -> list[str]:
    took = tally["duration"] or {}
    lengths = ["-" if took.get(name) is None else span(took[name]) for name in ("mean", "p50", "p95")]
    return [str(tally["count"]), *lengths]


async def show(asked: argparse.Namespace) -> int:
    """Everything about a job."""
    screen = screen_for(asked)
    if asked.timeline:
        async with client_for(asked) as client:
            told = await client.timeline(asked.job_id)
        screen.document(told) if screen.json else draw(screen, told)
        return exits.OK
    if asked.value is not None:
        async with client_for(asked) as client:
            screen.document(await client.files.value(asked.job_id, asked.value))
        return exits.OK
    async with client_for(asked) as client:
        job = await client.get(asked.job_id)
    if screen.json:
        screen.document(job)
        return exits.OK
    for name, value in _facts(job):
        screen.say(f"{name:<12} {value}")
    if job.attempts:
        screen.say()
        rows = [
            [
                each.attempt_id,
                each.type or "-",
                each.state,
                each.worker_id or "-",
                _moment(each.started_at),
                " ".join(filter(None, (_fault(each.error), _details(each.error)))),
            ]
            for each in job.attempts
        ]
        screen.table(["attempt", "task", "state", "worker", "started", "error"], rows)
    if hint := _elsewhere(job):
        screen.note(hint)
    return exits.OK


def _facts(job: JobObject) -> list[tuple[str, str]]:
    waiting = job.waiting_for
    facts = [
        ("id", job.id),
        ("blueprint", f"{job.blueprint} ({job.version})"),
        ("status", job.status),
        ("state", job.state),
        ("waiting for", "" if waiting is None else f"{waiting.kind} {shown(_open(waiting.detail))}"),
        ("progress", "" if job.progress is None else f"{job.progress:.0%}"),
        ("input", shown(job.input)),
        ("data", shown(job.data)),
        ("result", "" if job.result is None else shown(job.result)),
        ("error", _fault(job.error)),
        ("attributes", shown(job.search_attributes) if job.search_attributes else ""),
        ("parent", job.parent_id or ""),
        ("client", job.client if isinstance(job.client, str) else ""),
        ("created", _moment(job.created_at)),
        ("finished", "" if job.finished_at is None else _moment(job.finished_at)),
        ("bill", f"{job.bill.seconds:.3f} s, {job.bill.cost:.6g}" if job.bill.cost else ""),
    ]
    return [(name, value) for name, value in facts if value]


def _open(detail: dict[str, Any]) -> dict[str, Any]:
    """What may be seen by whoever looks over a shoulder: the token decides without a client's. JSON has it."""
    return {name: value for name, value in detail.items() if name != "token"}


def _fault(error: object) -> str:
    code, message = getattr(error, "code", ""), getattr(error, "message", "")
    return f"{code}: {message}" if message else code


def _details(error: AttemptErrorView | None) -> str:
    """What a worker told beyond words, but for where it happened: JSON and the worker's log have that."""
    told = error.details if error is not None else None
    if not isinstance(told, dict):
        return ""
    rest = {name: value for name, value in told.items() if name not in ("type", "traceback")}
    return shown(rest) if rest else ""


def _moment(at: datetime | None) -> str:
    return "-" if at is None else at.isoformat(sep=" ", timespec="milliseconds")


async def history(asked: argparse.Namespace) -> int:
    """What happened to a job."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        events = await client.history(asked.job_id)
    if screen.json:
        screen.document({"items": events})
        return exits.OK
    lines = EventLines()
    for event in events:
        for line in lines.of(event):
            screen.say(line)
    return exits.OK


async def explain(asked: argparse.Namespace) -> int:
    """Why a job does not go on."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        answer = await client.explain(asked.job_id)
    if screen.json:
        screen.document(answer)
        return exits.OK
    screen.say(str(answer.get("summary", "")))
    for reason in answer.get("reasons", []):
        screen.say(f"  - {reason.get('detail', '')}{_workers(reason.get('workers', 0))}")
        if reason.get("unblock"):
            screen.say(f"    → {reason['unblock']}")
    return exits.OK


def _workers(count: int) -> str:
    return "" if not count else f" ({count} {'worker' if count == 1 else 'workers'})"


# -- deciding --------------------------------------------------------------------------------------


async def cancel(asked: argparse.Namespace) -> int:
    """Ask for a stop."""
    async with client_for(asked) as client:
        return _said(asked, await client.cancel(asked.job_id, asked.reason))


async def approve(asked: argparse.Namespace) -> int:
    """Pass on a person's decision."""
    data = maybe_object_in("--data", asked.data)
    async with client_for(asked) as client:
        return _said(asked, await client.approve(asked.job_id, asked.decision, asked.comment, data))


#: The parser gives it another word for the decision; the rest is the same.
reject = approve


async def retry(asked: argparse.Namespace) -> int:
    """Let a quarantined job try again."""
    data = maybe_object_in("--data", asked.data)
    async with client_for(asked) as client:
        return _said(asked, await client.release(asked.job_id, data))


async def fail(asked: argparse.Namespace) -> int:
    """Give a quarantined job up."""
    async with client_for(asked) as client:
        return _said(asked, await client.fail(asked.job_id, asked.reason))


def _said(asked: argparse.Namespace, job: JobObject) -> int:
    """The job as it stands after a decision."""
    screen = screen_for(asked)
    if screen.json:
        screen.document(job)
    else:
        screen.say(f"{job.status}  {job.id}  {job.blueprint}  {job.state}")
    return exits.OK
