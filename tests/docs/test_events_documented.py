"""Every event has its line in the reference, and every line an event."""

import re
from pathlib import Path

from regista import EventType

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "events.md"


def test_every_event_has_its_line_and_every_line_an_event() -> None:
    told = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)

    assert told == [event.value for event in EventType]
