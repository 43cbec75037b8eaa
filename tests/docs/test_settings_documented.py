"""The reference page of settings is written from their declarations."""

from pathlib import Path

import pytest

from regista.config import CONNECTION_SETTINGS, SETTINGS, WORKER_SETTINGS, Setting
from regista.config.reference import settings_reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
EVERY = [*SETTINGS, *WORKER_SETTINGS, *CONNECTION_SETTINGS]


def test_the_page_is_what_the_declarations_say() -> None:
    assert PAGE.read_text() == settings_reference(), (
        "write it again: python -m regista.config.reference > docs/reference/settings.md"
    )


@pytest.mark.parametrize("setting", EVERY, ids=[setting.env for setting in EVERY])
def test_every_setting_says_what_it_does(setting: Setting) -> None:
    assert len(setting.help) > 60
    assert f"### `{setting.env}`" in PAGE.read_text()
