"""`regista schedules …`: create and manage schedules."""

import argparse
import re
from typing import Any

import msgspec

from ..errors import ApiError, ScheduleInvalid
from . import exits
from .calls import client_for, maybe_object_in
from .output import screen_for
from .refusals import UsageError

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


async def listing(asked: argparse.Namespace) -> int:
    """Every schedule, and when it fires next."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        found = await client.schedules.list()
    if screen.json:
        screen.document({"items": found})
        return exits.OK
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
    screen.table(columns, rows, _NOTHING)
    return exits.OK


async def show(asked: argparse.Namespace) -> int:
    """A schedule, and what became of its last ticks."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        one = await client.schedules.get(asked.name)
    if screen.json:
        screen.document(one)
        return exits.OK
    for name, value in _facts(one):
        screen.say(f"{name:<12} {value}")
    if one["records"]:
        screen.say()
        rows = [_record(record) for record in one["records"]]
        screen.table(["at", "result", "tick", "ticks", "job", "reason"], rows)
    return exits.OK


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


async def coming(asked: argparse.Namespace) -> int:
    """The next ticks of a schedule."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        ticks = await client.schedules.next(asked.name, asked.count)
    if screen.json:
        screen.document({"items": ticks})
        return exits.OK
    for tick in ticks:
        late = "" if tick["tick"] == tick["fires_at"] else f"  fires at {_moment(tick['fires_at'])}"
        screen.say(_moment(tick["tick"]) + late)
    return exits.OK


async def pause(asked: argparse.Namespace) -> int:
    """Let nothing fire until it is resumed."""
    async with client_for(asked) as client:
        return _said(asked, await client.schedules.pause(asked.name, asked.reason))


async def resume(asked: argparse.Namespace) -> int:
    """Let it fire again."""
    async with client_for(asked) as client:
        return _said(asked, await client.schedules.resume(asked.name, asked.reason))


async def trigger(asked: argparse.Namespace) -> int:
    """Start a job of it now."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        job_id = await client.schedules.trigger(asked.name, asked.key)
    if screen.json:
        screen.document({"job_id": job_id})
    else:
        screen.say(job_id)
    return exits.OK


async def create(asked: argparse.Namespace) -> int:
    """Make a schedule."""
    members = maybe_object_in("--members", asked.members) or {}
    given = {
        "interval_seconds": asked.every,
        "daily_at": asked.daily_at,
        "weekly_days": asked.weekly_days,
        "monthly_dates": asked.monthly_dates,
        "time": asked.time,
        "cron": asked.cron,
        "timezone": asked.timezone,
        "overlap": asked.overlap,
        "catch_up": asked.catch_up,
        "jitter_seconds": asked.jitter,
        "input_data": maybe_object_in("--input", asked.input),
        "paused": asked.paused or None,
    }
    members |= {name: value for name, value in given.items() if value is not None}
    members["blueprint"] = asked.blueprint
    if "name" in members:
        raise UsageError("--members: the name is an argument of its own")
    async with client_for(asked) as client:
        try:
            made = await client.schedules.create(asked.name, **members)
        except ScheduleInvalid as error:
            raise UsageError(_by_flags(str(error))) from None
        except ApiError as error:
            if error.code != "invalid_body":
                raise
            raise UsageError(_by_flags(error.detail)) from None
    return _said(asked, made)


def _by_flags(words: str) -> str:
    """What the orchestrator says of members, said of the flags that stand for them."""
    for member, flag in _FLAGS.items():
        words = re.sub(member, flag, words)
    return words


async def delete(asked: argparse.Namespace) -> int:
    """Forget a schedule."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        await client.schedules.delete(asked.name)
    if screen.json:
        screen.document({"name": asked.name, "deleted": True})
    else:
        screen.say(f"{asked.name} deleted; its jobs are kept")
    return exits.OK


def _said(asked: argparse.Namespace, one: dict[str, Any]) -> int:
    screen = screen_for(asked)
    if screen.json:
        screen.document(one)
    else:
        fires = "paused" if one["paused"] else f"next {_moment(one['next'])}"
        screen.say(f"{one['name']}  {one['blueprint']}  {one['when']}  {fires}")
    return exits.OK


def _moment(text: str | None) -> str:
    return "-" if not text else text.replace("T", " ")
