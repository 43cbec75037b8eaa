"""Every command and flag, in one table of contents. Light: this is all that `--help` loads."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

_Commands = Any  # argparse keeps the type of its sub-commands to itself
Add = Callable[..., argparse.ArgumentParser]

#: As in `model.status`, which is too heavy for `--help`.
STATUSES = (
    *("pending", "running", "waiting_for_worker", "waiting_for_parallel", "waiting_for_human"),
    *("waiting_for_child", "waiting_for_timer", "cancelling"),
    *("quarantined", "finished", "failed", "cancelled"),
)

_EPILOG = (
    "exit codes: 0 done or finished, 1 failed or refused, 2 wrong usage, 3 cancelled, 4 quarantined, "
    "5 timed out waiting, 6 no orchestrator answers. "
    "Who you are to the orchestrator: the token in CLIENT_TOKEN, else the one that a local orchestrator left in "
    ".regista/client.token (--dir names another directory)."
)


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
    )
    parser.set_defaults(json=None, debug=None)
    parser.add_argument(
        "--version", action="store_const", const="version.show", dest="run", help="say the version"
    )
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    named = _ADD.get(next((word for word in words if word not in ("--json", "--debug")), ""))
    for add in _ADD.values() if named is None else (named,):
        add(commands)
    return parser


# -- processes that stay ---------------------------------------------------------------------------


def _dev(commands: _Commands) -> None:
    dev = _command(commands, "dev", "dev.dev", "run an app while you write it: orchestrator, workers, reload")
    _app(dev)
    _listening(dev)
    dev.add_argument(
        "--no-reload", action="store_true", help="do not start again when a file of the app changes"
    )
    dev.add_argument("--report-files", type=int, metavar="FD", help=argparse.SUPPRESS)
    dev.add_argument("--parent", type=int, metavar="PID", help=argparse.SUPPRESS)


def _serve(commands: _Commands) -> None:
    serve = _command(commands, "serve", "serve.serve", "run the orchestrator of an app")
    _app(serve, needed=False)
    _listening(serve)


def _worker(commands: _Commands) -> None:
    worker = _command(commands, "worker", "worker.work", "run the workers of an app")
    _app(worker, more="; APP:NAME is its worker NAME only")
    worker.add_argument(
        "--worker", action="append", metavar="NAME", help="run the worker of this name only; may be repeated"
    )
    _flag(worker, "--url", "ORCHESTRATOR_URL", "where the orchestrator is")
    text = "how many tasks at a time; default 0: as many as its Worker says in the code"
    _flag(worker, "--concurrency", "MAX_CONCURRENT_TASKS", text, type=_whole, metavar="N")
    _flag(
        worker, "--queue", "WORKER_QUEUES", "take tasks of this queue only; may be repeated", action="append"
    )
    _flag(
        worker, "--dir", "REGISTA_DIR", "where a local orchestrator left its worker token; default .regista"
    )
    _flag(
        worker, "--log-level", "WORKER_LOG_LEVEL", "the least important level that is logged", metavar="LEVEL"
    )


def _app(parser: argparse.ArgumentParser, *, needed: bool = True, more: str = "") -> None:
    parser.add_argument(
        "app",
        metavar="APP",
        nargs=None if needed else "?",
        help=f"a Python file or package.module; its module-level blueprints and workers are taken{more}",
    )


def _listening(parser: argparse.ArgumentParser) -> None:
    _flag(parser, "--host", "API_HOST", "the address to listen on; default 127.0.0.1")
    _flag(parser, "--port", "API_PORT", "the port to listen on; default 8080, 0 is any free one", type=_whole)
    _flag(parser, "--storage", "REGISTA_STORAGE", "memory, sqlite:PATH or redis://HOST; else a file in --dir")
    _flag(parser, "--dir", "REGISTA_DIR", "where tokens and the file of jobs are kept; default .regista")
    _flag(parser, "--log-level", "LOG_LEVEL", "the least important level that is logged", metavar="LEVEL")


# -- nouns -----------------------------------------------------------------------------------------


def _jobs(commands: _Commands) -> None:
    verb = _noun(commands, "jobs", "start jobs, look at them, and decide about them")
    run = verb("run", "jobs.run", "start a job")
    run.add_argument("blueprint", metavar="BLUEPRINT")
    run.add_argument(
        "--input", metavar="JSON", default="{}", help="a JSON object, @FILE, or - for standard input"
    )
    run.add_argument("--key", help="idempotency key: the same key is the same job")
    run.add_argument("--priority", type=_number, metavar="N", help="higher goes first; default 0")
    text = "let each task wait so many seconds for a worker, where its blueprint does not say"
    run.add_argument("--dispatch-timeout", type=_seconds, metavar="S", help=text)
    text = "let each task take so many seconds in all, retries too, where its blueprint does not say"
    run.add_argument("--result-timeout", type=_seconds, metavar="S", help=text)
    run.add_argument("--webhook", metavar="URL", help="tell this URL when the job waits for a person or ends")
    run.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a search attribute, its value JSON or else text; may be repeated",
    )
    _waiting(run)
    listing = verb("list", "jobs.listing", "the newest jobs")
    _filters(listing)
    listing.add_argument("--limit", type=_some, default=20, metavar="N", help="how many; default 20")
    count = verb("count", "jobs.count", "how many jobs fit, and how long they took")
    _filters(count)
    count.add_argument("--by", metavar="NAME", help="by ExecutionStatus, BlueprintName or a search attribute")
    count.add_argument("--limit", type=_some, default=20, metavar="N", help="groups at most; default 20")
    show = _one(verb, "show", "everything about a job")
    show.add_argument("--timeline", action="store_true", help="its life drawn as bars: states, tasks, waits")
    show.add_argument("--value", metavar="SHA256", help="one value that is too large to be shown, as JSON")
    watch = _one(verb, "watch", "follow a job to its end")
    watch.add_argument("--timeout", type=_seconds, metavar="S", help="stop watching after so many seconds")
    _reason(_one(verb, "cancel", "ask a job to stop"))
    _deciding(verb)
    fork = _one(verb, "fork", "start a new job with the blueprint and input of this one")
    fork.add_argument("--input", metavar="JSON", help="members that take the place of the old ones")
    _waiting(fork)
    _one(verb, "explain", "why a job does not go on")
    _one(verb, "history", "what happened to a job")
    _files(verb)


def _files(verb: Add) -> None:
    files = _one(verb, "files", "the files of a job, and their content up and down")
    files.set_defaults(run="files.files")
    what = files.add_mutually_exclusive_group()
    what.add_argument("--get", metavar="NAME", help="fetch this file")
    what.add_argument("--put", metavar="FILE", help="give the job this file")
    what.add_argument("--link", metavar="NAME", help="say a URL that anybody can fetch it from for an hour")
    files.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="with --get: where to, - is standard output; default its own name, here",
    )
    files.add_argument("--force", action="store_true", help="with --get: replace a file that is there")
    files.add_argument("--name", metavar="NAME", help="with --put: its name there; default its own")


def _filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--query", "-q", metavar="QUERY", help="a list filter, like \"AssetType = 'video'\"")
    parser.add_argument("--status", choices=STATUSES, metavar="STATUS", help=f"one of {', '.join(STATUSES)}")
    parser.add_argument("--blueprint", metavar="NAME")


def _history(commands: _Commands) -> None:
    verb = _noun(commands, "history", "what happened, to take along")
    export = verb("export", "history.export", "jobs and their events, as lines of JSON")
    _filters(export)
    export.add_argument(
        "--output", "-o", type=_file, metavar="FILE", help="where to; default -, standard output"
    )


def _deciding(verb: Add) -> None:
    for name, text in (("approve", "say yes to a job that asks"), ("reject", "say no to a job that asks")):
        decide = _one(verb, name, text)
        decide.add_argument(
            "--decision", default=name, metavar="WORD", help=f"the word itself; default {name}"
        )
        decide.add_argument("--comment", default="")
        decide.add_argument("--data", metavar="JSON", help="a JSON object for the job")
    retry = _one(verb, "retry", "let a quarantined job try again")
    retry.add_argument(
        "--data", metavar="JSON", help="a JSON object that is merged into the job's data first"
    )
    _reason(_one(verb, "fail", "give a quarantined job up"))


def _workers(commands: _Commands) -> None:
    verb = _noun(commands, "workers", "who performs")
    verb("list", "workers.listing", "every worker that is known")
    drain = verb("drain", "workers.drain", "let a worker finish what it has and take nothing new")
    drain.add_argument("worker_id", metavar="WORKER")
    undrain = verb("undrain", "workers.undrain", "let a worker that was drained take tasks again")
    undrain.add_argument("worker_id", metavar="WORKER")


def _blueprints(commands: _Commands) -> None:
    verb = _noun(commands, "blueprints", "what can be run")
    verb("list", "blueprints.listing", "every blueprint that the orchestrator knows")
    graph = verb("graph", "blueprints.graph", "the states of a blueprint, drawn")
    graph.add_argument("blueprint", metavar="BLUEPRINT")
    graph.add_argument("--format", choices=("dot", "svg", "png"), default="dot", help="default dot")
    graph.add_argument(
        "--output", "-o", type=_file, metavar="FILE", help="where to; default -, standard output"
    )
    graph.add_argument("--app", metavar="APP", help="take it from this app, not from an orchestrator")
    check = verb("check", "blueprints.check", "is an app fit to be served, and can live jobs move to it")
    _app(check)
    live = check.add_mutually_exclusive_group()
    live.add_argument("--offline", action="store_true", help="do not ask an orchestrator for its live jobs")
    text = "for CI: fail also when a live job cannot move to it, or when none could be asked for"
    live.add_argument("--strict", action="store_true", help=text)


def _webhooks(commands: _Commands) -> None:
    verb = _noun(commands, "webhooks", "what was told about jobs and not heard")
    listing = verb("list", "webhooks.listing", "deliveries that were given up, or are still tried")
    listing.add_argument("--state", choices=("dead", "pending"), default="dead", help="default dead")
    again = verb("redeliver", "webhooks.redeliver", "send deliveries again, now")
    again.add_argument("delivery_ids", metavar="DELIVERY", nargs="*", help="none: all that were given up")
    discard = verb("discard", "webhooks.discard", "forget a delivery")
    discard.add_argument("delivery_id", metavar="DELIVERY")
    verb("secret", "webhooks.secret", "what deliveries to you are signed with")


def _audit(commands: _Commands) -> None:
    audit = _calling(commands, "audit", "audit.listing", "who did what, newest first; for operators")
    audit.add_argument("--actor", default="", metavar="WHO", help="only what this one did, like client:NAME")
    audit.add_argument("--action", default="", metavar="WHAT", help="only such deeds, like worker.drain")
    audit.add_argument("--target", default="", metavar="ID", help="only what was done to this")
    audit.add_argument("--limit", type=_some, default=50, metavar="N", help="how many; default 50")


def _schedules(commands: _Commands) -> None:
    verb = _noun(commands, "schedules", "what is started when")
    verb("list", "schedules.listing", "every schedule, and when it fires next")

    def one(name: str, run: str, text: str) -> argparse.ArgumentParser:
        parser = verb(name, f"schedules.{run}", text)
        parser.add_argument("name", metavar="SCHEDULE")
        return parser

    one("show", "show", "a schedule, and what became of its last ticks")
    coming = one("next", "coming", "the next ticks of a schedule")
    coming.add_argument("--count", type=_some, default=10, metavar="N", help="how many; default 10")
    _reason(one("pause", "pause", "let nothing fire until it is resumed"))
    _reason(one("resume", "resume", "let it fire again, from now on"))
    trigger = one("trigger", "trigger", "start a job of it now")
    trigger.add_argument("--key", help="idempotency key: the same key is the same job")
    _making(one("create", "create", "make a schedule"))
    one("delete", "delete", "forget a schedule that was made by create")


def _making(create: argparse.ArgumentParser) -> None:
    create.add_argument("blueprint", metavar="BLUEPRINT")
    create.add_argument(
        "--every", type=_interval, metavar="S", help="each so many seconds, or 90s, 15m, 1h, 1d"
    )
    create.add_argument("--daily-at", action="append", metavar="HH:MM", help="may be repeated")
    create.add_argument("--weekly-days", nargs="+", metavar="DAY", help="mon, tue …; with --time")
    create.add_argument(
        "--monthly-dates", nargs="+", type=_whole, metavar="N", help="with --time; -1 is the last"
    )
    create.add_argument("--time", metavar="HH:MM", help="belongs to days and dates")
    create.add_argument("--cron", metavar="LINE", help="five fields, or @daily and its like")
    create.add_argument("--timezone", metavar="ZONE", help="default: the orchestrator's TZ")
    create.add_argument("--input", metavar="JSON", help="what each job gets: a JSON object, @FILE, or -")
    create.add_argument("--overlap", metavar="HOW", help="allow, skip, cancel_previous or buffer_one")
    create.add_argument("--catch-up", metavar="HOW", help="none, last or all")
    create.add_argument("--jitter", type=_seconds, metavar="S", help="fire up to so many seconds later")
    create.add_argument("--paused", action="store_true", help="nothing fires until it is resumed")
    create.add_argument("--members", metavar="JSON", help="any other members, as the API takes them")


def _queues(commands: _Commands) -> None:
    _calling(commands, "queues", "queues.listing", "what waits, what runs, and how long")


def _upkeep(commands: _Commands) -> None:
    _calling(commands, "upkeep", "upkeep.listing", "how the chores of the orchestrator fare; for operators")


def _doctor(commands: _Commands) -> None:
    doctor = _calling(commands, "doctor", "doctor.examine", "is everything as it should be, and what to do")
    _flag(doctor, "--storage", "REGISTA_STORAGE", "look at this store: memory, sqlite:PATH or redis://HOST")


def _whoami(commands: _Commands) -> None:
    _calling(commands, "whoami", "whoami.show", "as whom you are let in, and your quota")


def _version(commands: _Commands) -> None:
    _command(commands, "version", "version.show", "say the version")


def _tokens(commands: _Commands) -> None:
    text = "make tokens, and take them back"
    verbs = _verbs(commands, "tokens", text)
    new = _command(verbs, "new", "tokens.new", "make a token, and the lines that let its owner in")
    whose = new.add_mutually_exclusive_group(required=True)
    whose.add_argument("--client", metavar="NAME", help="for a client: a table of clients.toml")
    whose.add_argument("--worker", metavar="ID", help="for a worker: a table of workers.toml")
    new.add_argument("--operator", action="store_true", help="a client that sees and moves everybody's jobs")
    text = "make a one-time password for a worker that is about to start; for operators"
    otp = _calling(verbs, "otp", "tokens.otp", text)
    otp.add_argument(
        "worker_id", metavar="WORKER", nargs="?", help="for this one; else whichever uses it first"
    )
    text = "end the short-lived tokens of a worker; for operators"
    revoke = _calling(verbs, "revoke", "tokens.revoke", text)
    revoke.add_argument("worker_id", metavar="WORKER")


#: Who adds the command of a name. The help has them in this order.
_ADD: dict[str, Callable[[_Commands], None]] = {
    "dev": _dev,
    "serve": _serve,
    "worker": _worker,
    "jobs": _jobs,
    "history": _history,
    "workers": _workers,
    "blueprints": _blueprints,
    "webhooks": _webhooks,
    "audit": _audit,
    "schedules": _schedules,
    "queues": _queues,
    "upkeep": _upkeep,
    "doctor": _doctor,
    "whoami": _whoami,
    "version": _version,
    "tokens": _tokens,
}


# -- what commands share ---------------------------------------------------------------------------


def _verbs(commands: _Commands, name: str, text: str) -> _Commands:
    """A noun; alone, it says what it can do (`overview`)."""
    noun = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
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
        name, help=text, description=text, parents=[_talking(), _common()], allow_abbrev=False
    )
    parser.set_defaults(run=run)
    return parser


def _one(verb: Add, name: str, text: str) -> argparse.ArgumentParser:
    parser = verb(name, f"jobs.{name}", text)
    parser.add_argument("job_id", metavar="JOB")
    return parser


def _command(commands: _Commands, name: str, run: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, parents=[_common()], allow_abbrev=False
    )
    parser.set_defaults(run=run)
    return parser


def _common() -> argparse.ArgumentParser:
    """Flags of every command. They may also stand before it: a command that lacks them leaves what was parsed there."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    _flag(common, "--json", "REGISTA_JSON", "answer in JSON", action="store_true")
    _flag(common, "--debug", "REGISTA_DEBUG", "show tracebacks", action="store_true")
    return common


def _talking() -> argparse.ArgumentParser:
    talking = argparse.ArgumentParser(add_help=False)
    text = "where the orchestrator is; default: as one left it in --dir, else http://127.0.0.1:8080"
    _flag(talking, "--url", "REGISTA_URL", text)
    text = "where a local orchestrator left its address and client token; default .regista"
    _flag(talking, "--dir", "REGISTA_DIR", text)
    return talking


def _waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", action="store_true", help="follow it to its end; the exit code mirrors the job"
    )
    parser.add_argument("--timeout", type=_seconds, metavar="S", help="with --wait: for so many seconds only")


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
    parser.add_argument("--reason", default="", help="for the record")


def _flag(parser: argparse.ArgumentParser, name: str, env: str, text: str, **more: Any) -> None:
    """A flag that is a setting: its help names the variable that does the same."""
    parser.add_argument(name, help=f"{text} [{env}]", **more)
