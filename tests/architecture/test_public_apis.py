"""Only public names of other libraries are imported, and no change is made to what the whole process shares."""

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "regista"
#: Read or change how CPython runs code, or settings of the whole process that a library must leave alone.
PROCESS_WIDE = {
    "sys": {"setswitchinterval", "setrecursionlimit", "settrace", "setprofile", "_getframe"},
    "gc": {"freeze", "disable", "set_threshold"},
    "asyncio": {"set_event_loop_policy", "set_event_loop"},
    "socket": {"setdefaulttimeout"},
    "signal": {"signal"},
}
#: Entry points own their process: what they start, nobody imports.
ENTRY_POINTS = {"cli", "sdk/main.py", "server.py", "testing"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SRC.rglob("*.py")):
        yield str(path.relative_to(SRC)), ast.parse(path.read_text())


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def test_no_private_name_is_imported_from_another_library() -> None:
    found = []
    for where, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                found += [f"{where}:{node.lineno}: {name}" for name in names if is_private(name)]
            elif isinstance(node, ast.Import):
                names = [part for alias in node.names for part in alias.name.split(".")]
                found += [f"{where}:{node.lineno}: {name}" for name in names if is_private(name)]

    assert found == []


def test_only_entry_points_change_settings_of_the_process() -> None:
    found = []
    for where, tree in modules():
        if where.partition("/")[0] in ENTRY_POINTS or where in ENTRY_POINTS:
            continue
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
                continue
            if node.attr in PROCESS_WIDE.get(node.value.id, ()):
                found.append(f"{where}:{node.lineno}: {ast.unparse(node)}")

    assert found == []


def test_no_settings_of_the_process_change_at_import() -> None:
    found = []
    for where, tree in modules():
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.If):
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    owner = node.func.value
                    if isinstance(owner, ast.Name) and node.func.attr in PROCESS_WIDE.get(owner.id, ()):
                        found.append(f"{where}:{node.lineno}: {ast.unparse(node)}")

    assert found == []
