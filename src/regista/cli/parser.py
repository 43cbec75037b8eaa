"""Every command and flag, in one table of contents. Light: this is all that `--help` loads."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_Commands = Any  # argparse keeps the type of its sub-commands to itself
Add = Callable[..., argparse.ArgumentParser]

#: As in `model.status`, which is too heavy for `--help`.
STATUSES = (
    *("pending", "running", "waiting_for_worker", "waiting_for_parallel", "waiting_for_human"),
    *("waiting_for_child", "waiting_for_timer", "cancelling"),
    *("quarantined", "finished", "failed", "cancelled"),
)

_EPILOG = """\
Exit codes: 0 done or finished, 1 failed or refused, 2 wrong usage, 3 cancelled, 4 quarantined,
5 timed out, 6 orchestrator not reachable.
Commands authenticate with CLIENT_TOKEN, else with the token that a local orchestrator stored in
.regista/client.token (--dir names another directory).
"""


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The whole command line. `run` of what it parses names the function that does it: `noun.verb`.

    `words`: what it will parse. Where they begin with a command it knows no other: all of them take thirty times as long
    to describe, at every start.
    """
    parser = argparse.ArgumentParser(
        prog="regista",
        description="A durable job orchestrator.",
        epilog=_EPILOG,
        allow_abbrev=False,
        parents=[_common()],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="regista [-h] [--json] [--debug] [--version] COMMAND ...",
    )
    parser.set_defaults(json=None, debug=None)
    parser.add_argument(
        "--version", action="store_const", const="version.show", dest="run", help="print the version"
    )
    commands = parser.add_subparsers(
        prog="regista", metavar="COMMAND", title="commands", description=_overview(), help=argparse.SUPPRESS
    )
    first = next((word for word in words if word not in ("--json", "--debug")), "")
    for name in (first,) if first in _COMMANDS else _COMMANDS:
        _COMMANDS[name].add(commands, _COMMANDS[name].summary)
    return parser


def _overview() -> str:
    """The commands by group, one line each."""
    groups: dict[str, list[str]] = {}
    for name, entry in _COMMANDS.items():
        groups.setdefault(entry.group, []).append(f"  {name:<12}{entry.summary}")
    return "\n".join("\n".join([f"{group}:", *lines]) for group, lines in groups.items())


# -- processes that stay ---------------------------------------------------------------------------


def _dev(commands: _Commands, summary: str) -> None:
    dev = _command(commands, "dev", "dev.dev", summary)
    _app(dev)
    _listening(dev)
    dev.add_argument(
        "--no-reload", action="store_true", help="do not start again when a file of the app changes"
    )
    dev.add_argument("--report-files", type=int, metavar="FD", help=argparse.SUPPRESS)
    dev.add_argument("--parent", type=int, metavar="PID", help=argparse.SUPPRESS)


def _serve(commands: _Commands, summary: str) -> None:
    serve = _command(commands, "serve", "serve.serve", summary)
    _app(serve, needed=False)
    _listening(serve)


def _worker(commands: _Commands, summary: str) -> None:
    worker = _command(commands, "worker", "worker.work", summary)
    _app(worker, more="; APP:NAME for its worker NAME only")
    worker.add_argument(
        "--worker", action="append", metavar="NAME", help="run this worker only; may be repeated"
    )
    _flag(
        worker,
        "--url",
        "ORCHESTRATOR_URL",
        "orchestrator URL (default: the one running in --dir, else http://127.0.0.1:8080)",
    )
    text = "tasks at a time (default 0: as the Worker says in the code)"
    _flag(worker, "--concurrency", "MAX_CONCURRENT_TASKS", text, type=_whole, metavar="N")
    _flag(
        worker, "--queue", "WORKER_QUEUES", "take tasks of this queue only; may be repeated", action="append"
    )
    _flag(worker, "--dir", "REGISTA_DIR", "state directory (default .regista)")
    _flag(worker, "--log-level", "WORKER_LOG_LEVEL", "DEBUG, INFO, WARNING or ERROR", metavar="LEVEL")


def _app(parser: argparse.ArgumentParser, *, needed: bool = True, more: str = "") -> None:
    parser.add_argument(
        "app",
        metavar="APP",
        nargs=None if needed else "?",
        help=f"Python file or module with blueprints and workers{more}",
    )


def _listening(parser: argparse.ArgumentParser) -> None:
    _flag(parser, "--host", "API_HOST", "address to listen on (default 127.0.0.1)")
    _flag(parser, "--port", "API_PORT", "port to listen on (default 8080; 0: any free port)", type=_whole)
    _flag(
        parser,
        "--storage",
        "REGISTA_STORAGE",
        "memory, sqlite:PATH or redis://HOST (default: a file in --dir)",
    )
    _flag(parser, "--dir", "REGISTA_DIR", "state directory (default .regista)")
    _flag(parser, "--log-level", "LOG_LEVEL", "DEBUG, INFO, WARNING or ERROR", metavar="LEVEL")


# -- nouns -----------------------------------------------------------------------------------------


def _jobs(commands: _Commands, summary: str) -> None:
    verb = _noun(commands, "jobs", summary)
    run = verb("run", "jobs.run", "Start a job")
    run.add_argument("blueprint", metavar="BLUEPRINT", help="name of the blueprint")
    run.add_argument(
        "--input", metavar="JSON", default="{}", help="a JSON object, @FILE, or - for standard input"
    )
    run.add_argument("--key", help="idempotency key: submitting it again returns the first job")
    run.add_argument("--priority", type=_number, metavar="N", help="higher goes first (default 0)")
    text = "default limit in seconds for a task to wait for a worker"
    run.add_argument("--dispatch-timeout", type=_seconds, metavar="S", help=text)
    text = "default limit in seconds for a task to finish, retries included"
    run.add_argument("--result-timeout", type=_seconds, metavar="S", help=text)
    run.add_argument(
        "--webhook", metavar="URL", help="POST to this URL when the job waits for a decision or ends"
    )
    run.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="search attribute, its value JSON or text; may be repeated",
    )
    _waiting(run)
    listing = verb("list", "jobs.listing", "List the newest jobs")
    _filters(listing)
    listing.add_argument("--limit", type=_some, default=20, metavar="N", help="how many (default 20)")
    count = verb("count", "jobs.count", "Count jobs, with durations")
    _filters(count)
    count.add_argument(
        "--by", metavar="NAME", help="group by ExecutionStatus, BlueprintName or a search attribute"
    )
    count.add_argument("--limit", type=_some, default=20, metavar="N", help="groups at most (default 20)")
    show = _one(verb, "show", "Show a job")
    show.add_argument("--timeline", action="store_true", help="draw its states, tasks and waits as bars")
    show.add_argument(
        "--value", metavar="SHA256", help="print one value that is too large to be shown, as JSON"
    )
    watch = _one(verb, "watch", "Follow a job to its end")
    watch.add_argument("--timeout", type=_seconds, metavar="S", help="stop watching after this many seconds")
    _reason(_one(verb, "cancel", "Cancel a job"))
    _deciding(verb)
    fork = _one(verb, "fork", "Start a new job with the blueprint and input of this one")
    fork.add_argument("--input", metavar="JSON", help="JSON object merged over the original input")
    _waiting(fork)
    _one(verb, "explain", "Explain what a job waits for")
    _one(verb, "history", "Show the events of a job")
    _files(verb)


def _files(verb: Add) -> None:
    files = _one(verb, "files", "List, download and upload files of a job")
    files.set_defaults(run="files.files")
    what = files.add_mutually_exclusive_group()
    what.add_argument("--get", metavar="NAME", help="download this file")
    what.add_argument("--put", metavar="FILE", help="upload this file")
    what.add_argument("--link", metavar="NAME", help="print a download URL, valid for one hour")
    files.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="with --get: where to (- is standard output; default: its name in this directory)",
    )
    files.add_argument("--force", action="store_true", help="with --get: replace an existing file")
    files.add_argument("--name", metavar="NAME", help="with --put: its name there (default: its own)")


def _filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--query", "-q", metavar="QUERY", help="list filter, like \"AssetType = 'video'\"")
    parser.add_argument("--status", choices=STATUSES, metavar="STATUS", help=f"one of {', '.join(STATUSES)}")
    parser.add_argument("--blueprint", metavar="NAME", help="jobs of this blueprint only")


def _history(commands: _Commands, summary: str) -> None:
    verb = _noun(commands, "history", summary)
    export = verb("export", "history.export", "Export jobs and their events as lines of JSON")
    _filters(export)
    export.add_argument(
        "--output", "-o", type=_file, metavar="FILE", help="where to (default -, standard output)"
    )


def _deciding(verb: Add) -> None:
    for name, text in (
        ("approve", "Approve a job that waits for a decision"),
        ("reject", "Reject a job that waits for a decision"),
    ):
        decide = _one(verb, name, text)
        decide.add_argument(
            "--decision", default=name, metavar="WORD", help=f"decision to send (default {name})"
        )
        decide.add_argument("--comment", default="", help="comment to send with the decision")
        decide.add_argument("--data", metavar="JSON", help="JSON object for the job")
    retry = _one(verb, "retry", "Resume a quarantined job")
    retry.add_argument("--data", metavar="JSON", help="JSON object merged into the data of the job first")
    _reason(_one(verb, "fail", "End a quarantined job as failed"))


def _workers(commands: _Commands, summary: str) -> None:
    verb = _noun(commands, "workers", summary)
    verb("list", "workers.listing", "List the known workers")
    drain = verb("drain", "workers.drain", "Give a worker no new tasks; running ones finish")
    drain.add_argument("worker_id", metavar="WORKER")
    undrain = verb("undrain", "workers.undrain", "Give a drained worker tasks again")
    undrain.add_argument("worker_id", metavar="WORKER")


def _blueprints(commands: _Commands, summary: str) -> None:
    verb = _noun(commands, "blueprints", summary)
    verb("list", "blueprints.listing", "List the blueprints of the orchestrator")
    graph = verb("graph", "blueprints.graph", "Draw the states of a blueprint")
    graph.add_argument("blueprint", metavar="BLUEPRINT", help="name of the blueprint")
    graph.add_argument(
        "--format", choices=("dot", "svg", "png"), default="dot", help="output format (default dot)"
    )
    graph.add_argument(
        "--output", "-o", type=_file, metavar="FILE", help="where to (default -, standard output)"
    )
    graph.add_argument("--app", metavar="APP", help="read it from this app, not from an orchestrator")
    check = verb(
        "check",
        "blueprints.check",
        "Check the blueprints of an app, and whether live jobs can migrate to them",
    )
    _app(check)
    live = check.add_mutually_exclusive_group()
    live.add_argument("--offline", action="store_true", help="do not look at live jobs")
    text = "for CI: fail also when a live job cannot migrate, or when the orchestrator cannot be reached"
    live.add_argument("--strict", action="store_true", help=text)


def _webhooks(commands: _Commands, summary: str) -> None:
    verb = _noun(commands, "webhooks", summary)
    listing = verb("list", "webhooks.listing", "List failed or pending deliveries")
    listing.add_argument(
        "--state",
        choices=("dead", "pending"),
        default="dead",
        help="dead (failed for good) or pending (default dead)",
    )
    again = verb("redeliver", "webhooks.redeliver", "Send deliveries again")
    again.add_argument(
        "delivery_ids", metavar="DELIVERY", nargs="*", help="id of a delivery (default: all that have failed)"
    )
    discard = verb("discard", "webhooks.discard", "Delete a delivery")
    discard.add_argument("delivery_id", metavar="DELIVERY")
    verb("secret", "webhooks.secret", "Show the secret that signs your deliveries")


def _audit(commands: _Commands, summary: str) -> None:
    audit = _calling(commands, "audit", "audit.listing", summary)
    audit.add_argument("--actor", default="", metavar="WHO", help="filter by actor, like client:NAME")
    audit.add_argument("--action", default="", metavar="WHAT", help="filter by action, like worker.drain")
    audit.add_argument("--target", default="", metavar="ID", help="filter by target")
    audit.add_argument("--limit", type=_some, default=50, metavar="N", help="how many (default 50)")


def _schedules(commands: _Commands, summary: str) -> None:
    verb = _noun(commands, "schedules", summary)
    verb("list", "schedules.listing", "List schedules and their next ticks")

    def one(name: str, run: str, text: str) -> argparse.ArgumentParser:
        parser = verb(name, f"schedules.{run}", text)
        parser.add_argument("name", metavar="SCHEDULE")
        return parser

    one("show", "show", "Show a schedule and its last ticks")
    coming = one("next", "coming", "Show the next ticks of a schedule")
    coming.add_argument("--count", type=_some, default=10, metavar="N", help="how many (default 10)")
    _reason(one("pause", "pause", "Pause a schedule"))
    _reason(one("resume", "resume", "Resume a paused schedule"))
    trigger = one("trigger", "trigger", "Start a job of a schedule now")
    trigger.add_argument("--key", help="idempotency key: submitting it again returns the first job")
    _making(one("create", "create", "Create a schedule"))
    one("delete", "delete", "Delete a schedule")


def _making(create: argparse.ArgumentParser) -> None:
    create.add_argument("blueprint", metavar="BLUEPRINT", help="name of the blueprint")
    create.add_argument(
        "--every", type=_interval, metavar="S", help="interval in seconds, or like 90s, 15m, 1h, 1d"
    )
    create.add_argument(
        "--daily-at", action="append", metavar="HH:MM", help="time of every day; may be repeated"
    )
    create.add_argument("--weekly-days", nargs="+", metavar="DAY", help="mon, tue …; with --time")
    create.add_argument(
        "--monthly-dates", nargs="+", type=_whole, metavar="N", help="with --time; -1 is the last"
    )
    create.add_argument("--time", metavar="HH:MM", help="time for --weekly-days and --monthly-dates")
    create.add_argument("--cron", metavar="LINE", help="five cron fields, or @daily, @hourly …")
    create.add_argument("--timezone", metavar="ZONE", help="time zone (default: TZ of the orchestrator)")
    create.add_argument("--input", metavar="JSON", help="input of each job: a JSON object, @FILE, or -")
    create.add_argument("--overlap", metavar="POLICY", help="allow, skip, cancel_previous or buffer_one")
    create.add_argument("--catch-up", metavar="POLICY", help="none, last or all")
    create.add_argument(
        "--jitter", type=_seconds, metavar="S", help="random delay of up to this many seconds"
    )
    create.add_argument("--paused", action="store_true", help="create it paused")
    create.add_argument("--members", metavar="JSON", help="further fields as JSON")


def _queues(commands: _Commands, summary: str) -> None:
    _calling(commands, "queues", "queues.listing", summary)


def _chores(commands: _Commands, summary: str) -> None:
    _calling(commands, "chores", "chores.listing", summary)


def _doctor(commands: _Commands, summary: str) -> None:
    doctor = _calling(commands, "doctor", "doctor.examine", summary)
    _flag(doctor, "--storage", "REGISTA_STORAGE", "store to check: memory, sqlite:PATH or redis://HOST")


def _whoami(commands: _Commands, summary: str) -> None:
    _calling(commands, "whoami", "whoami.show", summary)


def _version(commands: _Commands, summary: str) -> None:
    _command(commands, "version", "version.show", summary)


def _tokens(commands: _Commands, summary: str) -> None:
    verbs = _verbs(commands, "tokens", summary)
    new = _command(
        verbs, "new", "tokens.new", "Create a token, with the lines for clients.toml or workers.toml"
    )
    whose = new.add_mutually_exclusive_group(required=True)
    whose.add_argument("--client", metavar="NAME", help="for a client, a table of clients.toml")
    whose.add_argument("--worker", metavar="ID", help="for a worker, a table of workers.toml")
    new.add_argument("--operator", action="store_true", help="may see and manage all jobs")
    text = "Create a one-time password for a worker (operators)"
    otp = _calling(verbs, "otp", "tokens.otp", text)
    otp.add_argument("worker_id", metavar="WORKER", nargs="?", help="id of the worker (default: any worker)")
    text = "Revoke the short-lived tokens of a worker (operators)"
    revoke = _calling(verbs, "revoke", "tokens.revoke", text)
    revoke.add_argument("worker_id", metavar="WORKER")


class _Entry(NamedTuple):
    """A command: its group in the overview, its line there, and what adds its arguments."""

    group: str
    summary: str
    add: Callable[[_Commands, str], None]


#: Name → command, in the order of the overview.
_COMMANDS: dict[str, _Entry] = {
    "dev": _Entry("Run", "Run an app with its workers and reload it on changes", _dev),
    "serve": _Entry("Run", "Run the orchestrator", _serve),
    "worker": _Entry("Run", "Run the workers of an app", _worker),
    "jobs": _Entry("Jobs", "Start, list, watch and manage jobs", _jobs),
    "schedules": _Entry("Jobs", "Create and manage schedules", _schedules),
    "blueprints": _Entry("Jobs", "List, draw and check blueprints", _blueprints),
    "workers": _Entry("Operate", "List and drain workers", _workers),
    "queues": _Entry("Operate", "Show waiting and running tasks by queue", _queues),
    "webhooks": _Entry("Operate", "List and resend webhook deliveries", _webhooks),
    "chores": _Entry("Operate", "Show background chores (operators)", _chores),
    "audit": _Entry("Operate", "Show the audit log (operators)", _audit),
    "history": _Entry("Operate", "Export jobs and their events", _history),
    "tokens": _Entry("Access", "Create and revoke tokens", _tokens),
    "whoami": _Entry("Access", "Show your client and quota", _whoami),
    "doctor": _Entry("Tools", "Check this installation", _doctor),
    "version": _Entry("Tools", "Print the version", _version),
}


# -- what commands share ---------------------------------------------------------------------------


def _verbs(commands: _Commands, name: str, text: str) -> _Commands:
    """A noun; alone, it says what it can do (`overview`)."""
    noun = commands.add_parser(name, description=text, allow_abbrev=False)
    noun.set_defaults(overview=noun.print_help)
    return noun.add_subparsers(metavar="VERB", title="verbs")


def _noun(commands: _Commands, name: str, text: str) -> Add:
    verbs = _verbs(commands, name, text)

    def verb(name: str, run: str, text: str) -> argparse.ArgumentParser:
        return _calling(verbs, name, run, text)

    return verb


def _calling(commands: _Commands, name: str, run: str, text: str) -> argparse.ArgumentParser:
    """A command that talks to an orchestrator."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, description=text, parents=[_talking(), _common()], allow_abbrev=False, **_listed(name, text)
    )
    parser.set_defaults(run=run)
    return parser


def _one(verb: Add, name: str, text: str) -> argparse.ArgumentParser:
    parser = verb(name, f"jobs.{name}", text)
    parser.add_argument("job_id", metavar="JOB")
    return parser


def _command(commands: _Commands, name: str, run: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, description=text, parents=[_common()], allow_abbrev=False, **_listed(name, text)
    )
    parser.set_defaults(run=run)
    return parser


def _common() -> argparse.ArgumentParser:
    """Flags of every command. They may also stand before it: a command that lacks them leaves what was parsed there."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    _flag(common, "--json", "REGISTA_JSON", "answer in JSON", action="store_true")
    _flag(common, "--debug", "REGISTA_DEBUG", "show tracebacks", action="store_true")
    return common


def _listed(name: str, text: str) -> dict[str, str]:
    """A verb gets its line in the list of its noun; the overview has those of the commands."""
    is_command = name in _COMMANDS and _COMMANDS[name].summary == text
    return {} if is_command else {"help": text}


def _talking() -> argparse.ArgumentParser:
    talking = argparse.ArgumentParser(add_help=False)
    text = "orchestrator URL (default: the one running in --dir, else http://127.0.0.1:8080)"
    _flag(talking, "--url", "REGISTA_URL", text)
    text = "state directory (default .regista)"
    _flag(talking, "--dir", "REGISTA_DIR", text)
    return talking


def _waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", action="store_true", help="wait for the end; the exit code shows the result"
    )
    parser.add_argument(
        "--timeout", type=_seconds, metavar="S", help="with --wait: give up after this many seconds"
    )


def _some(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, 1 or more, got {text}")
    return number


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text}") from None


def _interval(text: str) -> int:
    size = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:])
    number = text if size is None else text[:-1]
    seconds = int(number) * (size or 1) if number.isdecimal() else 0
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"expected seconds, or a length like 15m, 1h or 1d, got {text}")
    return seconds


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds, 0 or more, got {text}")
    return seconds


def _file(text: str) -> str | None:
    """`-` is standard output, as is nothing at all."""
    return None if text == "-" else text


def _reason(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", default="", help="reason for the audit log")


def _flag(parser: argparse.ArgumentParser, name: str, env: str, text: str, **more: Any) -> None:
    """A flag that is a setting: its help names the variable that does the same."""
    parser.add_argument(name, help=f"{text} [{env}]", **more)
