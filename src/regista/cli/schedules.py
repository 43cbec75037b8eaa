"""`regista schedules …`: create and manage schedules."""

import argparse
import re
from typing import Any

import msgspec

from ..errors import ApiError, ScheduleInvalid
from . import exit_codes
from .calls import connect, parse_optional_object
from .errors import UsageError
from .output import output_for

#: For a person, where there is none.
_NOTHING = "No schedules. Create one: regista schedules create NAME BLUEPRINT --every 1h"

#: Member of a schedule, as a pattern → the flag of `create` for it.
_FLAGS = {
    r"\binterval_seconds\b": "--every",
    r"\bdaily_at\b": "--daily-at",
    r"\bweekly_days\b": "--weekly-days",
    r"\bmonthly_dates\b": "--monthly-dates",
    r"\bcron\b(?! line)": "--cron",
    r'^time(?=:)|\ba time = "HH:MM"': "--time",
    r"^(timezone|overlap)(?=:)": r"--\1",
    r"^catch_up(?=:)": "--catch-up",
    r"^jitter_seconds(?=:)": "--jitter",
    r"^input_data(?=:)": "--input",
}


async def listing(args: argparse.Namespace) -> int:
    """Every schedule, and when it fires next."""
    output = output_for(args)
    async with connect(args) as client:
        found = await client.schedules.list()
    if output.json:
        output.json_document({"items": found})
        return exit_codes.OK
    rows = [
        [
            one["name"],
            one["blueprint"],
            one["when"],
            one["timezone"],
            "paused" if one["paused"] else _moment(one["next"]),
            _moment(one["last_tick"]),
            str(one["fired"]),
            str(one["skipped"]),
            one["source"],
        ]
        for one in found
    ]
    columns = ["schedule", "blueprint", "trigger", "zone", "next", "last", "fired", "skipped", "source"]
    output.table(columns, rows, _NOTHING)
    return exit_codes.OK


async def show(args: argparse.Namespace) -> int:
    """A schedule, and what became of its last ticks."""
    output = output_for(args)
    async with connect(args) as client:
        one = await client.schedules.get(args.name)
    if output.json:
        output.json_document(one)
        return exit_codes.OK
    for name, value in _facts(one):
        output.line(f"{name:<12} {value}")
    if one["records"]:
        output.line()
        rows = [_record(record) for record in one["records"]]
        output.table(["at", "result", "tick", "ticks", "job", "reason"], rows)
    return exit_codes.OK


def _facts(one: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [
        ("name", one["name"]),
        ("source", one["source"]),
        ("blueprint", one["blueprint"]),
        ("trigger", f"{one['when']} ({one['timezone']})"),
        ("next", "paused" if one["paused"] else _moment(one["next"])),
        ("last", _moment(one["last_tick"])),
        ("last job", one["last_job_id"] or ""),
        ("waiting", _moment(one["buffered"]) if one["buffered"] else ""),
        ("fired", str(one["fired"])),
        ("skipped", str(one["skipped"])),
        ("members", msgspec.json.encode(one["schedule"]).decode()),
    ]
    return [(name, value) for name, value in facts if value]


def _record(record: dict[str, Any]) -> list[str]:
    why = ": ".join(filter(None, (record.get("reason"), record.get("message"))))
    return [
        _moment(record["at"]),
        record["kind"],
        _moment(record.get("tick")),
        str(record.get("count", 1)) if record.get("tick") else "-",
        record.get("job_id") or "-",
        why or "-",
    ]


async def coming(args: argparse.Namespace) -> int:
    """The next ticks of a schedule."""
    output = output_for(args)
    async with connect(args) as client:
        ticks = await client.schedules.next(args.name, args.count)
    if output.json:
        output.json_document({"items": ticks})
        return exit_codes.OK
    for tick in ticks:
        late = "" if tick["tick"] == tick["fires_at"] else f"  fires at {_moment(tick['fires_at'])}"
        output.line(_moment(tick["tick"]) + late)
    return exit_codes.OK


async def pause(args: argparse.Namespace) -> int:
    """Let nothing fire until it is resumed."""
    async with connect(args) as client:
        return _said(args, await client.schedules.pause(args.name, args.reason))


async def resume(args: argparse.Namespace) -> int:
    """Let it fire again."""
    async with connect(args) as client:
        return _said(args, await client.schedules.resume(args.name, args.reason))


async def trigger(args: argparse.Namespace) -> int:
    """Start a job of it now."""
    output = output_for(args)
    async with connect(args) as client:
        job_id = await client.schedules.trigger(args.name, args.key)
    if output.json:
        output.json_document({"job_id": job_id})
    else:
        output.line(job_id)
    return exit_codes.OK


async def create(args: argparse.Namespace) -> int:
    """Make a schedule."""
    members = parse_optional_object("--members", args.members) or {}
    given = {
        "interval_seconds": args.every,
        "daily_at": args.daily_at,
        "weekly_days": args.weekly_days,
        "monthly_dates": args.monthly_dates,
        "time": args.time,
        "cron": args.cron,
        "timezone": args.timezone,
        "overlap": args.overlap,
        "catch_up": args.catch_up,
        "jitter_seconds": args.jitter,
        "input_data": parse_optional_object("--input", args.input),
        "paused": args.paused or None,
    }
    members |= {name: value for name, value in given.items() if value is not None}
    members["blueprint"] = args.blueprint
    if "name" in members:
        raise UsageError("--members: the name is an argument of its own")
    async with connect(args) as client:
        try:
            made = await client.schedules.create(args.name, **members)
        except ScheduleInvalid as error:
            raise UsageError(_by_flags(str(error))) from None
        except ApiError as error:
            if error.code != "invalid_body":
                raise
            raise UsageError(_by_flags(error.detail)) from None
    return _said(args, made)


def _by_flags(words: str) -> str:
    """What the orchestrator says of members, said of the flags that stand for them."""
    for member, flag in _FLAGS.items():
        words = re.sub(member, flag, words)
    return words


async def delete(args: argparse.Namespace) -> int:
    """Forget a schedule."""
    output = output_for(args)
    async with connect(args) as client:
        await client.schedules.delete(args.name)
    if output.json:
        output.json_document({"name": args.name, "deleted": True})
    else:
        output.line(f"{args.name} deleted; its jobs are kept")
    return exit_codes.OK


def _said(args: argparse.Namespace, one: dict[str, Any]) -> int:
    output = output_for(args)
    if output.json:
        output.json_document(one)
    else:
        fires = "paused" if one["paused"] else f"next {_moment(one['next'])}"
        output.line(f"{one['name']}  {one['blueprint']}  {one['when']}  {fires}")
    return exit_codes.OK


def _moment(text: str | None) -> str:
    return "-" if not text else text.replace("T", " ")
