import inspect
import re
from datetime import UTC, datetime

import pytest

from regista import errors
from regista.errors import RegistaError

CLASSES = [
    each
    for each in vars(errors).values()
    if inspect.isclass(each) and issubclass(each, RegistaError) and each.__module__ == errors.__name__
]


def drawn_tree(text: str) -> list[tuple[int, str]]:
    """(depth, name) for each line of the drawing."""
    lines = (re.match(r"([│├└─ ]*)([A-Z]\w+)", line) for line in text.splitlines()[2:])
    return [(len(line[1]) // 4, line[2]) for line in lines if line]


def real_tree(root: type[RegistaError], depth: int = 0) -> list[tuple[int, str]]:
    below = [row for child in CLASSES if child.__base__ is root for row in real_tree(child, depth + 1)]
    return [(depth, root.__name__), *below]


def test_the_drawing_shows_the_classes_as_they_are() -> None:
    assert drawn_tree(errors.__doc__ or "") == real_tree(RegistaError)


def test_the_drawing_is_really_read() -> None:
    drawing = "A title.\n\nRegistaError\n├── JobError      words\n│   └── JobNotFound\n└── TaskError"

    assert drawn_tree(drawing) == [(0, "RegistaError"), (1, "JobError"), (2, "JobNotFound"), (1, "TaskError")]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_every_error_says_what_it_means(error: type[RegistaError]) -> None:
    assert inspect.getdoc(error)
    assert error.__doc__ is not None


def test_codes_tell_the_errors_apart() -> None:
    # A bare TaskError is treated as transient, so these two share their code on purpose.
    told_apart = [each for each in CLASSES if each is not errors.TransientError]

    assert len({each.code for each in told_apart}) == len(told_apart)
    assert errors.TransientError.code == errors.TaskError.code == "TRANSIENT_ERROR"


def test_facts_travel_as_attributes() -> None:
    error = errors.ConfigError("TZ", "a zone", "x")
    assert (error.name, error.expected, error.got) == ("TZ", "a zone", "x")
    assert str(error) == "TZ: expected a zone, got 'x'"

    invalid = errors.BlueprintInvalid("video", ["no start", "no end"])
    assert invalid.problems == ["no start", "no end"]
    assert "no start" in str(invalid)
    assert "no end" in str(invalid)

    assert errors.PermanentError("broken file", frame=7).details == {"frame": 7}
    assert errors.JobNotFound("j1").job_id == "j1"
    assert str(errors.BlueprintLoadError("a.py", 3, "boom")) == "cannot load blueprints from a.py:3: boom"


def test_a_quota_of_nothing_is_told_as_such_and_the_day_is_written_as_everywhere() -> None:
    month = datetime(2026, 2, 1, tzinfo=UTC)

    assert str(errors.QuotaExceeded(0, 0, month, 5)).endswith("no jobs: its monthly_attempts is 0")
    assert errors.QuotaExceeded(3, 3, month, 5).facts["resets_at"] == "2026-02-01T00:00:00Z"


def test_a_job_that_has_ended_is_not_retried_but_made_anew() -> None:
    assert str(errors.JobAlreadyTerminal("j1", "cancelled")) == "job j1: already cancelled"
    assert "`regista jobs fork j1` starts a new job like it" in str(errors.NotQuarantined("j1", "failed"))
    assert "fork" not in str(errors.NotQuarantined("j1", "running"))


def test_a_mistyped_blueprint_is_answered_with_the_nearest() -> None:
    near = errors.BlueprintNotFound("grete", ["greet", "video"])
    assert str(near) == "no blueprint named 'grete'; did you mean 'greet'? registered: greet, video"
    assert str(errors.BlueprintNotFound("x", [])) == "no blueprint named 'x'; registered: none"


def test_who_has_no_history_is_told_what_works_without() -> None:
    said = str(errors.HistoryDisabled())
    for word in ("HISTORY_DATABASE_URI", "PostgreSQL", "`regista jobs show`"):
        assert word in said
