import re
from pathlib import Path
from typing import Any

import pytest

from regista.config import (
    CONNECTION_SETTINGS,
    SETTINGS,
    WORKER_SETTINGS,
    Config,
    Connection,
    Setting,
    WorkerConfig,
)

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()
#: (environment name, the text below its heading), as they stand on the page. A name may stand in two tables.
PARAGRAPHS = re.findall(r"^### `(\w+)`\n\n(.*?)(?=\n#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
#: Every setting of every kind of process, in the order of the page, and the object that has its default.
EVERY: list[tuple[Setting, Any]] = [
    *((setting, Config(instance_id="the-host-name")) for setting in SETTINGS),
    *((setting, WorkerConfig()) for setting in WORKER_SETTINGS),
    *((setting, Connection()) for setting in CONNECTION_SETTINGS),
]
#: Defaults that are told in words.
WORDS = {
    "": ": empty",
    "[]": ": empty",
    "{}": ": empty",
    "()": ": empty",
    "None": ": unset",
    "the-host-name": ": the host name",
}


def test_every_setting_has_its_paragraph_and_every_paragraph_its_setting() -> None:
    assert [name for name, _ in PARAGRAPHS] == [setting.env for setting, _ in EVERY]


@pytest.mark.parametrize("number", range(len(EVERY)), ids=[setting.env for setting, _ in EVERY])
def test_the_paragraph_tells_field_and_default_and_says_something(number: int) -> None:
    (setting, defaults), (_, paragraph) = EVERY[number], PARAGRAPHS[number]
    first, _, rest = paragraph.partition("\n")
    default = getattr(defaults, setting.field)
    told = f"{default:g}" if isinstance(default, float) else str(default)

    assert first == f"Field `{setting.field}`, default{WORDS.get(told, f' `{told}`')}."
    assert len(rest) > 60
