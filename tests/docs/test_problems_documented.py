"""docs/reference/problems.md has every code that a refusal may carry, with its status, and none besides."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from regista.api.middleware import HTTP_CODES
from regista.api.problems import STATUS_OF

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "regista"
NGINX = ROOT / "deploy" / "nginx" / "regista" / "problems.conf"
PAGE = ROOT / "docs" / "reference" / "problems.md"
#: | `code` | 400, 409 | words | what to do |
#: A problem that nginx answers by itself.
NGINX_PROBLEM = re.compile(r'"status":(\d+),"code":"(\w+)"')
ROW = re.compile(r"^\| `([a-z_]+)` \| ([0-9, ]+) \| (.+) \| (.+) \|$", re.MULTILINE)


def raised(source: str) -> Iterator[tuple[str, int | None]]:
    """(code, status) of every `Problem(status, code, …)` that is written out; None where the status is not."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or len(node.args) < 2:
            continue
        name = getattr(node.func, "id", "")
        first, second = (each.value if isinstance(each, ast.Constant) else None for each in node.args[:2])
        if name == "Problem" and isinstance(second, str):
            yield second, first if isinstance(first, int) else None
        elif name == "TokenRefused" and isinstance(first, str):
            yield first, 401


def in_code() -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for path in [*(SRC / "api").rglob("*.py"), *(SRC / "workers").rglob("*.py")]:
        for code, status in raised(path.read_text()):
            found[code] |= {status} if status is not None else set()
    for kind, status in STATUS_OF.items():
        found[kind.code].add(status)
    for status, code in HTTP_CODES.items():
        found[code].add(status)
    for status, code in NGINX_PROBLEM.findall(NGINX.read_text()):
        found[code].add(int(status))
    return found


def in_page() -> dict[str, set[int]]:
    rows = ROW.findall(PAGE.read_text())
    assert len({code for code, *_ in rows}) == len(rows), "a code stands twice"
    return {code: {int(status) for status in statuses.split(",")} for code, statuses, *_ in rows}


def test_every_code_has_its_row_with_its_status_and_none_is_made_up() -> None:
    code, page = in_code(), in_page()
    assert sorted(code.keys() - page.keys()) == [], "these are raised, and not in docs/reference/problems.md"
    assert sorted(page.keys() - code.keys()) == [], (
        "these are in docs/reference/problems.md, and never raised"
    )
    wrong = {name: (sorted(code[name]), sorted(page[name])) for name in page if code[name] - page[name]}
    assert wrong == {}, "status in the code, and in the page"


def test_every_row_says_what_it_means_and_what_to_do() -> None:
    for code, _, means, todo in ROW.findall(PAGE.read_text()):
        assert len(means) > 15, code
        assert len(todo) > 10, code


def test_the_reader_of_the_code_reads_it() -> None:
    source = 'raise Problem(404, "a", "x")\nProblem(status, "b", "y")\nProblem(500, code, "z")'
    assert sorted(raised(source)) == [("a", 404), ("b", None)]
