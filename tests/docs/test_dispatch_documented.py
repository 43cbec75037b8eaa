from pathlib import Path

from regista.model import STRATEGIES
from regista.model.requirements import _READERS, OPERATORS

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "dispatch.md").read_text()


def test_every_requirement_has_its_words() -> None:
    assert [key for key in _READERS if f"`{key}`" not in PAGE] == []


def test_every_strategy_and_operator_has_its_words() -> None:
    assert [name for name in STRATEGIES if f"`{name}`" not in PAGE] == []
    assert [name for name in OPERATORS if name not in PAGE] == []
