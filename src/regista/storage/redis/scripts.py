"""Scripts: the Lua files beside this one, called by name. Each is one round trip."""

import secrets
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from itertools import count
from typing import Any

from ...errors import StorageError
from .constants import constants_in, written_out
from .line import Command, Reply, ServerRefusal
from .link import Link

#: The name of a script, and its arguments.
Call = tuple[Any, ...]

#: Every intention that needs a script.
NAMES = (
    "claim_ready",
    "claim_tasks",
    "commit",
    "due_records",
    "extend_leases",
    "find_records",
    "forget_worker",
    "heartbeat",
    "held_by",
    "lapsed",
    "lead",
    "messages",
    "prune",
    "put_records",
    "queue_status",
    "quota_used",
    "records",
    "register",
    "release_leases",
    "stranded",
    "tail",
    "take_tokens",
    "time",
    "update_worker",
    "workers",
)
#: What stands in front of all of them.
COMMON = ("lib/common",)
#: What stands between that and some of them: what a script does not need, the server would make anew with each call.
SHARED = {
    "claim_ready": ("lib/index",),
    "claim_tasks": ("lib/index",),
    "commit": ("lib/index", "lib/records", "lib/quota", "lib/job"),
    "due_records": ("lib/records",),
    "extend_leases": ("lib/index",),
    "find_records": ("lib/records",),
    "lapsed": ("lib/index",),
    "put_records": ("lib/records",),
    "queue_status": ("lib/index",),
    "quota_used": ("lib/quota",),
    "records": ("lib/records",),
    "register": ("lib/index",),
    "release_leases": ("lib/index",),
    "stranded": ("lib/index",),
}
#: Those that are told the server's process first, since what they do depends on what it has gone through.
NEEDS_RUN_ID = frozenset({"claim_ready", "commit", "lapsed", "register", "stranded"})
#: Those that take something out for the caller. They are told the name of the call, and how often it was sent before:
#: when an answer is lost, what was taken with it is handed out again.
REPEATABLE_CLAIMS = frozenset({"claim_ready", "claim_tasks", "take_tokens"})


@cache
def source_of(name: str) -> str:
    """The text of a Lua file."""
    return (files(__package__) / "lua" / f"{name}.lua").read_text()


@cache
def _constants_of(*names: str) -> dict[str, str]:
    *before, last = names
    return (_constants_of(*before) if before else {}) | constants_in(source_of(last))


@cache
def text_of(*names: str) -> str:
    """The text of a script that these files make: each sees what those before it define."""
    *before, last = names
    return (text_of(*before) if before else "") + written_out(source_of(last), _constants_of(*names))


class Scripts:
    """Calls scripts by their hash, and loads them again when the server has forgotten them.

    `now` is the Lua text of the store's clock; tests hand in one that they move by hand.
    """

    def __init__(self, link: Link, prefix: str, now: str | None = None) -> None:
        self._link = link
        self._prefix = prefix
        before = now or source_of("lib/now")
        self._texts = {name: before + text_of(*COMMON, *SHARED.get(name, ()), name) for name in NAMES}
        self._hashes = {name: sha1(text.encode()).hexdigest() for name, text in self._texts.items()}
        self._names = map(f"{secrets.token_hex(8)}:{{}}".format, count(1))
        #: How often a script was called: what a job costs the server.
        self.calls = 0

    async def load(self) -> None:
        """Hand all of them to the server."""
        try:
            await self._link.ask(*(("SCRIPT", "LOAD", text) for text in self._texts.values()))
        except ServerRefusal as refused:
            raise StorageError(f"the store does not take our scripts: {refused}") from None

    async def call(self, name: str, *arguments: Any) -> Reply:
        """The answer of one script."""
        self.calls += 1
        if name in REPEATABLE_CLAIMS:
            arguments = (next(self._names), *arguments)
        try:
            return (await self._link.ask(self._command(name, arguments)))[0]
        except ServerRefusal as refused:
            return (await self._ask_again([(name, *arguments)], refused))[0]

    async def call_many(self, calls: Sequence[Call]) -> list[Reply]:
        """The answers of several calls, sent together and carried out in order."""
        self.calls += len(calls)
        try:
            return await self._link.ask(*(self._command(name, arguments) for name, *arguments in calls))
        except ServerRefusal as refused:
            return await self._ask_again(calls, refused)

    def _command(self, name: str, arguments: Sequence[Any], *, whole: bool = False) -> Command:
        """The call by its hash; or with the whole text, which the server then knows."""
        how = ("EVAL", self._texts[name]) if whole else ("EVALSHA", self._hashes[name])
        words = (*how, 1, self._prefix)
        # The rest is said when it is sent, and not before: after an outage another process may be the one that answers.
        if name in REPEATABLE_CLAIMS:
            sent = count(int(whole))
            return lambda run: (*words, run, next(sent), *arguments)
        if name in NEEDS_RUN_ID:
            return lambda run: (*words, run, *arguments)
        return (*words, *arguments)

    async def _ask_again(self, calls: Sequence[Call], refused: ServerRefusal) -> list[Reply]:
        """Once more, if the server had only forgotten the scripts: it restarted, or was flushed by somebody.

        What went through before that is safe to send again. The text goes with the call: between a load and a call the
        scripts may be forgotten another time.
        """
        if str(refused).startswith("NOSCRIPT"):
            commands = [self._command(name, arguments, whole=True) for name, *arguments in calls]
            try:
                return await self._link.ask(*commands)
            except ServerRefusal as again:
                refused = again
        raise refused.of(*dict.fromkeys(name for name, *_ in calls)) from None
