"""Every route and every code of the worker protocol has its words in the reference."""

import re
from pathlib import Path

from regista.api import performers

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "worker-protocol.md").read_text()


def test_every_route_has_its_row() -> None:
    routes = [
        f"`{route.method} {route.path.replace('{worker_id}', '{id}')}`"
        for route in performers.routes
        if hasattr(route, "method") and hasattr(route, "path")
    ]

    assert len(routes) >= 7
    assert [route for route in routes if route not in PAGE] == []


def test_every_code_of_a_refusal_is_told() -> None:
    sources = [ROOT / "src" / "regista" / "api" / f"{name}.py" for name in ("performers", "worker_auth")]
    codes = {code for source in sources for code in re.findall(r'\b[45]\d\d,\s*"(\w+)"', source.read_text())}

    assert len(codes) >= 9
    assert sorted(code for code in codes if f"`{code}`" not in PAGE and code != "tokens_not_offered") == []


def test_every_word_of_an_answer_to_a_result_is_told() -> None:
    source = (ROOT / "src" / "regista" / "api" / "performers.py").read_text()
    words = set(re.findall(r'"(\w+_(?:transition|handled|accepted|failure))"', source)) - {"event_accepted"}

    assert len(words) == 5
    assert sorted(word for word in words | set(performers._REFUSALS) if f"`{word}`" not in PAGE) == []
