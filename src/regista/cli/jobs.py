"""`regista jobs …`: start jobs, look at them, and decide about them."""

import argparse
from datetime import datetime
from typing import Any

from ..client import Client
from ..schemas.jobs import AttemptErrorView, JobObject
from . import exit_codes
from .calls import connect, parse_attributes, parse_json_object, parse_optional_object
from .errors import UsageError
from .follow import follow, stream
from .output import Output, age, output_for, shown, span
from .story import EventLines
from .timeline import draw


async def run(args: argparse.Namespace) -> int:
    """Start a job; with --wait, follow it to its end."""
    _check_waiting(args)
    body = parse_json_object("--input", args.input)
    attributes = parse_attributes("--attribute", args.attribute)
    async with connect(args) as client:
        job = await client.submit(
            args.blueprint,
            body,
            idempotency_key=args.key,
            priority=args.priority,
            dispatch_timeout_s=args.dispatch_timeout,
            result_timeout_s=args.result_timeout,
            webhook_url=args.webhook,
            search_attributes=attributes or None,
        )
        return await _started(client, output_for(args), job, args)


async def fork(args: argparse.Namespace) -> int:
    """Start a new job like an old one."""
    _check_waiting(args)
    body = parse_optional_object("--input", args.input)
    async with connect(args) as client:
        job = await client.fork(args.job_id, body)
        return await _started(client, output_for(args), job, args)


def _check_waiting(args: argparse.Namespace) -> None:
    if args.timeout is not None and not args.wait:
        raise UsageError("--timeout: bounds --wait, and there is none; add --wait, or leave it out")


async def _started(client: Client, output: Output, job: JobObject, args: argparse.Namespace) -> int:
    if args.wait and output.json:
        # The job itself is the answer, so nobody needs to be shown its way.
        return _ended(output, await client.wait(job.id, args.timeout))
    if args.wait:
        return _ended(output, await follow(client, output, job.id, args.timeout, output.notice))
    if output.json:
        output.json_document(job)
    else:
        output.line(job.id)
    return exit_codes.OK


async def watch(args: argparse.Namespace) -> int:
    """Follow a job to its end; the exit code mirrors it."""
    output = output_for(args)
    async with connect(args) as client:
        if output.json:
            job = await stream(client, output, args.job_id, args.timeout)
            return exit_codes.of_status(job.status)
        return _ended(output, await follow(client, output, args.job_id, args.timeout, output.line))


def _ended(output: Output, job: JobObject) -> int:
    """Say how it ended, or how it stands."""
    code = exit_codes.of_status(job.status)
    if output.json:
        output.json_document(job)
        return code
    spent = age(job.created_at, job.finished_at)
    output.line(f"{job.status}  {job.id}  {job.blueprint}  {spent}")
    if job.error is not None:
        output.line(f"{job.error.code}: {job.error.message}")
    if job.status == "finished" or job.result is not None:
        output.line(shown(job.result))
    if hint := _hint(job, code):
        output.notice(hint)
    return code


def _hint(job: JobObject, code: int) -> str:
    if code == exit_codes.QUARANTINED:
        return f"mend what is wrong, then `regista jobs retry {job.id}`; or `regista jobs fail {job.id}`"
    if code == exit_codes.TIMED_OUT:
        return f"the time is up, the job goes on; `regista jobs watch {job.id}` follows it"
    return _elsewhere(job)


def _elsewhere(job: JobObject) -> str:
    """How to read what is too large to be shown."""
    for value in (job.result, *job.data.values(), *job.input.values()):
        told = value.get("$offloaded") if isinstance(value, dict) and len(value) == 1 else None
        if isinstance(told, dict) and "sha256" in told:
            return f"too large to be shown: `regista jobs show {job.id} --value {told['sha256']}` writes it whole"
    return ""


async def listing(args: argparse.Namespace) -> int:
    """The newest jobs that fit."""
    output = output_for(args)
    found: list[JobObject] = []
    async with connect(args) as client:
        page = min(args.limit + 1, 100)  # one more than is shown: then we know whether there are more
        async for job in client.jobs(
            query=args.query, status=args.status, blueprint=args.blueprint, page=page
        ):
            found.append(job)
            if len(found) > args.limit:
                break
        whose = not output.json and bool((await client.me()).get("operator"))
    more, found = len(found) > args.limit, found[: args.limit]
    if output.json:
        output.json_document({"items": found, "more": more})
        return exit_codes.OK
    columns = ["id", "blueprint", "status", "state", "age", *(["client"] if whose else [])]
    output.table(columns, [_row(job)[: len(columns)] for job in found], _no_jobs(args))
    if more:
        output.notice("there are more; --limit N shows more of them, --query and --status fewer")
    return exit_codes.OK


def _row(job: JobObject) -> list[str]:
    return [job.id, job.blueprint, job.status, job.state, age(job.created_at), str(job.client or "-")]


def _no_jobs(args: argparse.Namespace) -> str:
    if args.query or args.status or args.blueprint:
        return "no job fits; `regista jobs list` shows those of every status and blueprint"
    return "no jobs yet; `regista jobs run BLUEPRINT --input JSON` starts one"


async def count(args: argparse.Namespace) -> int:
    """How many jobs fit, and how long they took."""
    output = output_for(args)
    async with connect(args) as client:
        tally = await client.count(
            args.query, args.by, status=args.status, blueprint=args.blueprint, limit=args.limit
        )
    if output.json:
        output.json_document(tally)
        return exit_codes.OK
    groups = [[_group(group["value"]), *_figures(group)] for group in tally["groups"]]
    rows = [*groups, ["all", *_figures(tally)]]
    output.table([args.by or "jobs", "count", "mean", "p50", "p95"], rows)
    return exit_codes.OK


def _group(value: object) -> str:
    return "-" if value is None else value if isinstance(value, str) else shown(value)


def _figures(tally: dict[str, Any]) -> list[str]:
    took = tally["duration"] or {}
    lengths = ["-" if took.get(name) is None else span(took[name]) for name in ("mean", "p50", "p95")]
    return [str(tally["count"]), *lengths]


async def show(args: argparse.Namespace) -> int:
    """Everything about a job."""
    output = output_for(args)
    if args.timeline:
        async with connect(args) as client:
            told = await client.timeline(args.job_id)
        output.json_document(told) if output.json else draw(output, told)
        return exit_codes.OK
    if args.value is not None:
        async with connect(args) as client:
            output.json_document(await client.files.value(args.job_id, args.value))
        return exit_codes.OK
    async with connect(args) as client:
        job = await client.get(args.job_id)
    if output.json:
        output.json_document(job)
        return exit_codes.OK
    for name, value in _facts(job):
        output.line(f"{name:<12} {value}")
    if job.attempts:
        output.line()
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
        output.table(["attempt", "task", "state", "worker", "started", "error"], rows)
    if hint := _elsewhere(job):
        output.notice(hint)
    return exit_codes.OK


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


async def history(args: argparse.Namespace) -> int:
    """What happened to a job."""
    output = output_for(args)
    async with connect(args) as client:
        events = await client.history(args.job_id)
    if output.json:
        output.json_document({"items": events})
        return exit_codes.OK
    lines = EventLines()
    for event in events:
        for line in lines.of(event):
            output.line(line)
    return exit_codes.OK


async def explain(args: argparse.Namespace) -> int:
    """Why a job does not go on."""
    output = output_for(args)
    async with connect(args) as client:
        answer = await client.explain(args.job_id)
    if output.json:
        output.json_document(answer)
        return exit_codes.OK
    output.line(str(answer.get("summary", "")))
    for reason in answer.get("reasons", []):
        output.line(f"  - {reason.get('detail', '')}{_workers(reason.get('workers', 0))}")
        if reason.get("unblock"):
            output.line(f"    → {reason['unblock']}")
    return exit_codes.OK


def _workers(count: int) -> str:
    return "" if not count else f" ({count} {'worker' if count == 1 else 'workers'})"


# -- deciding --------------------------------------------------------------------------------------


async def cancel(args: argparse.Namespace) -> int:
    """Ask for a stop."""
    async with connect(args) as client:
        return _said(args, await client.cancel(args.job_id, args.reason))


async def approve(args: argparse.Namespace) -> int:
    """Pass on a person's decision."""
    data = parse_optional_object("--data", args.data)
    async with connect(args) as client:
        return _said(args, await client.approve(args.job_id, args.decision, args.comment, data))


#: The parser gives it another word for the decision; the rest is the same.
reject = approve


async def retry(args: argparse.Namespace) -> int:
    """Let a quarantined job try again."""
    data = parse_optional_object("--data", args.data)
    async with connect(args) as client:
        return _said(args, await client.release(args.job_id, data))


async def fail(args: argparse.Namespace) -> int:
    """Give a quarantined job up."""
    async with connect(args) as client:
        return _said(args, await client.fail(args.job_id, args.reason))


def _said(args: argparse.Namespace, job: JobObject) -> int:
    """The job as it stands after a decision."""
    output = output_for(args)
    if output.json:
        output.json_document(job)
    else:
        output.line(f"{job.status}  {job.id}  {job.blueprint}  {job.state}")
    return exit_codes.OK
