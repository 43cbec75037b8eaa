"""`regista blueprints …`: what can be run, drawn, and checked before it is served."""

import argparse
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from .. import StateMachineBlueprint
from ..client import Client
from ..errors import BlueprintError, BlueprintInvalid, BlueprintNotFound, GraphvizMissing, Unreachable
from ..model import JobStatus
from ..schemas.jobs import JobObject
from . import exit_codes
from .app import load_app
from .calls import connect
from .errors import UsageError
from .output import Output, output_for

#: How many jobs that cannot move are named; the rest is counted.
_NAMED = 10


async def listing(args: argparse.Namespace) -> int:
    """Every blueprint that the orchestrator knows."""
    output = output_for(args)
    async with connect(args) as client:
        found = await client.blueprints()
    if output.json:
        output.json_document({"items": found})
    else:
        output.table(["blueprint", "version", "states", "source"], [_row(each) for each in found])
    return exit_codes.OK


def _row(blueprint: dict[str, Any]) -> list[str]:
    states = blueprint.get("states", [])
    first: dict[str, Any] = next((state for state in states if state.get("is_start")), {})
    source = next(iter(first.get("handlers", [])), "")
    return [str(blueprint.get("name", "")), str(blueprint.get("version", "")), str(len(states)), source]


async def graph(args: argparse.Namespace) -> int:
    """The states of a blueprint, drawn."""
    output = output_for(args)
    if args.format == "png" and args.output is None and (output.json or sys.stdout.isatty()):
        raise UsageError("a picture is not text: name a file with --output, or ask for dot or svg")
    if args.app is not None:
        drawing = _draw(args.app, args.blueprint, args.format)
    else:
        async with connect(args) as client:
            drawing = await client.graph(args.blueprint, args.format)
    _deliver(output, args, drawing)
    return exit_codes.OK


def _deliver(output: Output, args: argparse.Namespace, drawing: bytes) -> None:
    if args.output is not None:
        try:
            Path(args.output).write_bytes(drawing)
        except OSError as error:
            raise UsageError(f"--output: cannot write {args.output}: {error.strerror}") from None
    if output.json:
        where = {"file": args.output} if args.output else {"graph": drawing.decode()}
        output.json_document({"blueprint": args.blueprint, "format": args.format, **where})
    elif args.output is None and sys.stdout.isatty():
        output.line(drawing.decode(errors="replace").rstrip("\n"))
    elif args.output is None:
        sys.stdout.buffer.write(drawing)
        sys.stdout.buffer.flush()


def _draw(app: str, name: str, output_format: str) -> bytes:
    found = {each.name: each for each in load_app(app).need_blueprints()}
    if name not in found:
        raise BlueprintNotFound(name, list(found))
    dot = found[name].to_dot().encode()
    if output_format == "dot":
        return dot
    binary = shutil.which("dot")
    if binary is None:
        raise GraphvizMissing(output_format)
    done = subprocess.run([binary, f"-T{output_format}"], input=dot, capture_output=True, check=False)
    if done.returncode != 0:
        raise BlueprintError(f"graphviz could not draw it: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


async def check(args: argparse.Namespace) -> int:
    """Is the app fit to be served, and which live jobs could move to it."""
    output = output_for(args)
    found = load_app(args.app).need_blueprints()
    reports = [_validated(blueprint) for blueprint in found]
    note = "live jobs were not looked at, as --offline says" if args.offline else ""
    asked_in_vain = False
    if not args.offline:
        try:
            async with connect(args) as client:
                for blueprint, report in zip(found, reports, strict=True):
                    if not report["problems"]:
                        report["live_jobs"] = await _movable(client, blueprint)
        except Unreachable as error:
            note, asked_in_vain = f"{error}; live jobs were not looked at", True
            output.notice(note)
    _tell(output, reports, note)
    if any(report["problems"] or (args.strict and _stays(report)) for report in reports):
        return exit_codes.FAILED
    return exit_codes.UNREACHABLE if args.strict and asked_in_vain else exit_codes.OK


def _stays(report: dict[str, Any]) -> list[dict[str, str]]:
    """The live jobs that cannot move to this version."""
    found: list[dict[str, str]] = (report["live_jobs"] or {}).get("cannot_move", [])
    return found


def _validated(blueprint: StateMachineBlueprint) -> dict[str, Any]:
    try:
        blueprint.validate()
    except BlueprintInvalid as error:
        return {"blueprint": blueprint.name, "version": None, "problems": error.problems, "live_jobs": None}
    return {"blueprint": blueprint.name, "version": blueprint.version, "problems": [], "live_jobs": None}


async def _movable(client: Client, blueprint: StateMachineBlueprint) -> dict[str, Any]:
    """Which live jobs of other versions could go on with this one, and why the others cannot."""
    same = move = 0
    stay: list[dict[str, str]] = []
    leads = await _served_leads(client, blueprint.name)
    async for job in _live(client, blueprint.name):
        needed = _needed(job) | (leads.get((job.version, job.state), set()) if job.waiting_for else set())
        missing = needed - blueprint.graph.states.keys()
        if job.version == blueprint.version:
            same += 1
        elif not missing:
            move += 1
        else:
            stay.append({"id": job.id, "reason": f"this version has no state {', '.join(sorted(missing))}"})
    return {"same_version": same, "can_move": move, "cannot_move": stay}


async def _served_leads(client: Client, name: str) -> dict[tuple[str, str], set[str]]:
    """Where each state of the version that is served now leads: what a job waits for may take it there."""
    served = [one for one in await client.blueprints() if one["name"] == name]
    return {
        (one["version"], state["name"]): set(state["targets"] or ())
        for one in served
        for state in one["states"]
    }


async def _live(client: Client, name: str) -> AsyncIterator[JobObject]:
    for status in JobStatus:
        if not status.terminal:
            async for job in client.jobs(status=status.value, blueprint=name):
                yield job


def _needed(job: JobObject) -> set[str]:
    """The states that a version must have for the job to go on with it: its own, and its aggregator's."""
    detail = job.waiting_for.detail if job.waiting_for is not None else {}
    return {job.state, *filter(None, [detail.get("aggregator")])}


def _tell(output: Output, reports: list[dict[str, Any]], note: str) -> None:
    if output.json:
        output.json_document({"items": reports} | ({"note": note} if note else {}))
        return
    for report in reports:
        for problem in report["problems"]:
            output.line(f"error    {report['blueprint']}: {problem}")
        if not report["problems"]:
            mark = "blocked" if _stays(report) else "ok     "
            output.line(f"{mark}  {report['blueprint']} {report['version']}{_jobs_told(report['live_jobs'])}")
        stays = _stays(report)
        for stay in stays[:_NAMED]:
            output.line(f"       {stay['id']} cannot migrate: {stay['reason']}")
        if len(stays) > _NAMED:
            output.line(f"       and {len(stays) - _NAMED} more")


def _jobs_told(jobs: dict[str, Any] | None) -> str:
    if jobs is None:
        return ""
    stay = len(jobs["cannot_move"])
    return (
        f"  live jobs: {jobs['same_version']} on this version, {jobs['can_move']} can migrate, {stay} cannot"
    )
