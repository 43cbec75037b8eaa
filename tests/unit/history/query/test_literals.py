from datetime import UTC, datetime
from typing import Any

import pytest

from regista.history.query.literals import moment_of, span_of


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31 12:00:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("2026-01-31T12:00:00.123456789Z", datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)),
        (1769860800_000000_000, datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("20260131", None),
        ("today", None),
        (10**30, None),
    ],
)
def test_a_moment_is_read_as_people_and_temporal_write_it(value: Any, moment: datetime | None) -> None:
    assert moment_of(value, UTC) == moment


@pytest.mark.parametrize(
    ("value", "microseconds"),
    [
        ("90s", 90_000_000),
        ("1h30m", 5_400_000_000),
        ("1d 2h", 93_600_000_000),
        ("250ms", 250_000),
        ("1.5s", 1_500_000),
        ("00:01:30", 90_000_000),
        (2_000, 2),
        ("90", None),
        ("1w", None),
        ("", None),
        ("9999999999d", None),
    ],
)
def test_a_span_is_read_as_people_and_temporal_write_it(value: Any, microseconds: int | None) -> None:
    assert span_of(value) == microseconds
