"""Every route of the client API has its paragraph, and every paragraph a route."""

import re
from pathlib import Path

from regista.api.app import NOUNS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"


def test_every_route_has_its_paragraph_and_every_paragraph_a_route() -> None:
    told = re.findall(r"^### `(\w+) ([^`]+)`\n\n(.{20})", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    served = {(one.method, one.paths()[0]) for noun in NOUNS for one in noun}

    assert {(method, path) for method, path, _ in told} == served
    assert len(told) == len(served)
