"""The pytest plugin `regista`: fixtures for whoever tests blueprints. Loads nothing before it is used."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .clock import Clock
    from .orchestrator import TestOrchestrator


@pytest.fixture
def orchestrator() -> "Iterator[TestOrchestrator]":
    """A `TestOrchestrator`; `register` blueprints and define `task` functions on it.

    It is closed after the test, and the promises are checked over everything that happened.
    """
    from .orchestrator import TestOrchestrator

    with TestOrchestrator() as director:
        yield director


@pytest.fixture
def regista_clock() -> "Clock":
    """A clock that stands still until it is moved by hand."""
    from .clock import Clock

    return Clock()
