"""Imports go downwards only. CONTRIBUTING.md shows the same table to people."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "regista"

#: Room (the longest matching name wins) → floor. `x.__init__` is what `import regista.x` runs.
FLOORS = {
    **dict.fromkeys(["orchestrator", "composition", "backends", "filing", "server", "cli", "__main__"], 5),
    **dict.fromkeys(["api", "rpc", "dashboard", "services"], 4),
    **dict.fromkeys(["engines.native", "dispatch", "workers", "logs", "maintenance"], 3),
    **dict.fromkeys(
        [
            "history.recorder",
            "history.reader",
            "schedules.scheduler",
            "schedules.registry",
            "payloads.cleanup",
            "webhooks.sender",
            "webhooks.claims",
            "webhooks.limits",
        ],
        3,
    ),
    **dict.fromkeys(
        [
            "engines.handler_runner",
            "engines.approval_tokens",
            "engines.live_events",
            "engines.progress_relay",
            "engines.quotas",
        ],
        3,
    ),
    **dict.fromkeys(
        ["storage", "storage.redis", "history", "providers", "payloads", "engines.temporal", "observe"], 2
    ),
    "history.postgres": 2,
    "history.timeline": 0,
    "history.projection": 0,
    "history.query": 1,
    **dict.fromkeys(["storage.base", "history.base", "providers.base", "payloads.base", "engines.base"], 1),
    "payloads.task_files": 1,
    "maintenance.chore": 1,
    "maintenance.__init__": 1,
    **dict.fromkeys(["storage.__init__", "history.__init__", "engines.__init__"], 1),
    **dict.fromkeys(["blueprint", "machine", "config", "tokens", "client", "webhooks"], 1),
    **dict.fromkeys(["schemas", "workers.protocol", "tls", "connection_errors", "payloads.links"], 1),
    **dict.fromkeys(
        [
            "model",
            "errors",
            "clock",
            "aio",
            "places",
            "together",
            "serialization",
            "terminal",
            "trace_context",
            "schedules",
            "redaction",
            "log_throttle",
        ],
        0,
    ),
}
#: Floor → the floors that it may import from. Floor 2 is missing: only the orchestrator and `backends` name one.
BELOW = {5: {4, 3, 1, 0}, 4: {3, 1, 0}, 3: {1, 0}, 2: {1, 0}, 1: {0}, 0: {0}}
#: On floor 3 each may import those to its right; the readers of history, the scheduler and the cleanup of files stand beside them.
CHAIN = [
    "maintenance",
    "workers",
    "engines.native",
    "engines.handler_runner",
    "engines.approval_tokens",
    "engines.live_events",
    "engines.progress_relay",
    "engines.quotas",
    "dispatch",
    "logs",
]
#: What a room may import beyond that.
ALSO = {
    "orchestrator": {"composition", "backends", "server", "sdk", "observe", "history"},
    "composition": {room for room, floor in FLOORS.items() if floor == 2} | {"filing", "backends"},
    "backends": {"storage", "storage.redis", "history", "history.postgres"},
    "filing": {"payloads"},
    "server": {"orchestrator"},
    "storage.redis": {"storage"},
    "history.postgres": {"history"},
    "history.base": {"history.query"},
    "__main__": {"cli"},
    "cli": {"orchestrator", "backends", "server", "observe", "sdk", "payloads", "__init__"},
    # The version of the package stands in `__init__`, which loads nothing by itself.
    "observe": {"__init__"},
    **{room: {"services", "observe", "__init__"} for room in ("api", "rpc", "dashboard")},
    "client": {"schemas", "tls", "connection_errors", "config", "tokens"},
    "config": {"tokens"},
    "webhooks": {"config", "schemas"},
    # The sender is a chore.
    "webhooks.sender": {"maintenance.chore", "webhooks.claims", "webhooks.limits"},
    "worker": {"sdk"},
    "sdk": {
        "workers.protocol",
        "workers.__init__",
        "tls",
        "connection_errors",
        "tokens",
        "model",
        "errors",
        "clock",
        "aio",
        "serialization",
        "trace_context",
        "config",
        "payloads.base",
        "payloads.task_files",
    },
    "payloads.task_files": {"payloads.base"},
    "payloads": {"config"},
    "schedules.scheduler": {"schedules.registry"},
    "blueprint": {"payloads.task_files"},
    "machine": {"blueprint"},
    "engines.base": {"machine", "history.query"},
    "engines.native": {"history.reader"},
}
#: Third-party packages, by room; msgspec is welcome everywhere.
LIBRARIES = {
    "schedules": {"cronsim"},
    "orchestrator": {"aiohttp"},
    "server": {"aiohttp"},
    "aio": {"uvloop"},
    "api": {"aiohttp"},
    "client": {"aiohttp", "yarl"},
    "webhooks": {"aiohttp", "yarl"},
    "sdk": {"aiohttp"},
    "cli": {"rich"},
    "storage.redis": {"redis", "hiredis"},
    "payloads": {"obstore"},
    "history.postgres": {"asyncpg"},
    "history.query": {"lark"},
    "trace_context": {"opentelemetry"},
    "observe": {"opentelemetry", "prometheus_client"},
    "testing": {"pytest", "hypothesis", "aiohttp"},
}
FREE = {"__init__", "testing"}  # the lazy door and the test kit import anything; nothing imports the kit


def modules() -> dict[str, Path]:
    return {".".join(p.relative_to(SRC).with_suffix("").parts): p for p in sorted(SRC.rglob("*.py"))}


def room_of(module: str) -> str:
    names = [*FLOORS, "sdk", "worker", *FREE]
    fits = [name for name in names if module == name or module.startswith(f"{name}.")]
    return max(fits, key=len, default="")


def imports(module: str, source: str) -> Iterator[str]:
    """Absolute names of everything that `module` imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ["regista", *module.split(".")][: -node.level] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def target_of(name: str, known: set[str]) -> str:
    """The module that the absolute name `regista.a.b.C` is found in, without the leading `regista.`."""
    parts = name.split(".")[1:]
    for end in range(len(parts), 0, -1):
        for candidate in (".".join(parts[:end]), ".".join([*parts[:end], "__init__"])):
            if candidate in known:
                return candidate
    return "__init__"


def may_import(room: str, target: str) -> bool:
    if room == target or target in ALSO.get(room, ()):
        return True
    if room in CHAIN and target in CHAIN:
        return CHAIN.index(room) < CHAIN.index(target)
    return room in FLOORS and target in FLOORS and FLOORS[target] in BELOW[FLOORS[room]]


def complaints(module: str, source: str, known: set[str]) -> list[str]:
    room = room_of(module)
    found = [] if room else [f"{module} is in no room of the table"]
    for name in imports(module, source):
        package = name.partition(".")[0]
        if package == "regista":
            target = room_of(target_of(name, known))
            if target == "testing" and room != "testing":
                found.append(f"{module} imports testing, and nothing may")
            elif room not in FREE and not may_import(room, target):
                found.append(f"{module} imports {name}: {room} may not know {target or 'the root'}")
        elif package not in sys.stdlib_module_names | {"msgspec"} | LIBRARIES.get(room, set()):
            found.append(f"{module} imports {package}, which is not its library")
    return found


def test_imports_go_downwards_only() -> None:
    known = set(modules())
    found = [each for name, path in modules().items() for each in complaints(name, path.read_text(), known)]

    assert found == []


def test_only_config_reads_the_environment() -> None:
    readers = [
        name
        for name, path in modules().items()
        if any(f"os.{word}" in path.read_text() for word in ("environ", "getenv"))
    ]

    assert {room_of(name) for name in readers} - {"testing"} == {"config"}


KNOWN = {
    "__init__",
    "model.__init__",
    "model.job",
    "errors",
    "config",
    "machine.transitions",
    "storage.__init__",
}
KNOWN |= {
    "storage.base",
    "storage.memory",
    "storage.sqlite",
    "history.base",
    "history.sqlite",
    "sdk.local",
}
KNOWN |= {
    "engines.native.executor",
    "dispatch.dispatcher",
    "maintenance.watcher",
    "orchestrator",
    "testing.clock",
}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("model.job", "from ..config import Config"),
        ("model.job", "import aiohttp"),
        ("storage.base", "from .memory import MemoryStorage"),
        ("storage.__init__", "from .memory import MemoryStorage"),
        ("storage.sqlite", "from regista.history.sqlite import SqliteHistory"),
        ("storage.sqlite", "import redis.asyncio"),
        ("machine.transitions", "from regista.storage import base"),
        ("machine.transitions", "def late():\n    from ..orchestrator import OrchestratorEngine"),
        ("dispatch.dispatcher", "from ..engines.native.executor import JobExecutor"),
        ("engines.native.executor", "from ...storage.memory import MemoryStorage"),
        ("engines.native.executor", "from regista import OrchestratorEngine"),
        ("sdk.local", "from ..machine import transitions"),
        ("maintenance.watcher", "from ..testing.clock import Clock"),
        ("attic.trunk", "import json"),
        ("services.audit", "from aiohttp import web"),
        ("services.audit", "from ..api.app import create_app"),
    ],
)
def test_an_import_against_the_floors_is_noticed(module: str, source: str) -> None:
    assert len(complaints(module, source, KNOWN)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("model.job", "import json, msgspec\nfrom ..errors import RegistaError"),
        (
            "storage.sqlite",
            "import sqlite3\nfrom .base import StorageBackend\nfrom .memory import MemoryStorage",
        ),
        (
            "engines.native.executor",
            "from ...dispatch.dispatcher import Dispatcher\nfrom ...storage import base",
        ),
        ("maintenance.watcher", "from ..engines.native import executor"),
        ("sdk.local", "from ..model import Task\nfrom ..config import Config"),
        ("composition", "from .storage.sqlite import SqliteStorage"),
        ("testing.clock", "import pytest\nfrom regista import OrchestratorEngine"),
    ],
)
def test_an_import_along_the_floors_is_fine(module: str, source: str) -> None:
    assert complaints(module, source, KNOWN) == []
