"""The aiohttp that is known from the inside."""

import re
from pathlib import Path

from regista.api.insides import KNOWN

LOCK = Path(__file__).parents[3] / "requirements.lock"


def test_the_version_that_everything_is_tested_with_is_known() -> None:
    """After a new lock: run the tests with it, then name it in `insides.py`. Until then requests take the longer way."""
    locked = re.search(r"^aiohttp==(\S+)", LOCK.read_text(), re.MULTILINE)
    assert locked is not None
    assert locked[1] in KNOWN
