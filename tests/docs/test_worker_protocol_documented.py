"""Every route and every code of the worker protocol has its words in the reference."""

import re
from pathlib import Path

from regista.api.worker_protocol import http, tokens

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "worker-protocol.md").read_text()


def test_every_route_has_its_row() -> None:
    routes = [
        f"`{route.method} {route.path.replace('{worker_id}', '{id}')}`"
        for route in [*http.routes, *tokens.routes]
        if hasattr(route, "method") and hasattr(route, "path")
    ]

    assert len(routes) >= 7
    assert [route for route in routes if route not in PAGE] == []


def test_every_code_of_a_refusal_is_told() -> None:
    rooms = (
        "api/worker_protocol/http",
        "api/worker_protocol/auth",
        "api/worker_protocol/tokens",
        "api/network",
        "workers/credentials",
        "workers/one_time_passwords",
    )
    sources = [(ROOT / "src" / "regista" / f"{name}.py").read_text() for name in rooms]
    told = r'(?:\b[45]\d\d,|TokenRefused\(|WrongWorker\()\s*"(\w+)"'
    codes = {code for source in sources for code in re.findall(told, source)}

    assert len(codes) >= 17
    assert sorted(code for code in codes if f"`{code}`" not in PAGE) == []


def test_every_word_of_an_answer_to_a_result_is_told() -> None:
    source = (ROOT / "src" / "regista" / "api" / "worker_protocol" / "http.py").read_text()
    words = set(re.findall(r'"(\w+_(?:transition|handled|accepted|failure))"', source)) - {"event_accepted"}

    assert len(words) == 5
    assert sorted(word for word in words | set(http._REFUSALS) if f"`{word}`" not in PAGE) == []
