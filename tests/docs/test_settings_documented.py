import re
from pathlib import Path

import pytest

from regista.config import SETTINGS, Config, Setting

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()
#: Environment name → the text below its heading.
PARAGRAPHS = dict(re.findall(r"^### `(\w+)`\n\n(.*?)(?=\n#|\Z)", PAGE, re.MULTILINE | re.DOTALL))
DEFAULTS = Config(instance_id="the-host-name")


def test_every_setting_has_its_paragraph_and_every_paragraph_its_setting() -> None:
    assert list(PARAGRAPHS) == [setting.env for setting in SETTINGS]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.env)
def test_the_paragraph_tells_field_and_default_and_says_something(setting: Setting) -> None:
    first, _, rest = PARAGRAPHS[setting.env].partition("\n")
    default = getattr(DEFAULTS, setting.field)
    if isinstance(default, float):
        default = f"{default:g}"
    shown = {"": ": empty", "the-host-name": ": the host name"}.get(default, f" `{default}`")

    assert first == f"Field `{setting.field}`, default{shown}."
    assert len(rest) > 60
