"""What a task function may say about its attempt."""

from typing import Any

import pytest

from regista.errors import NotSerializable
from regista.model import Task
from regista.worker import TaskContext


class Share(float):
    """A number of a library of its own."""


def context_and_notes() -> tuple[TaskContext, list[Any]]:
    notes: list[Any] = []
    task = Task(id="j_1_0", job_id="j", type="work", params={})
    return TaskContext(task, lambda *said: notes.append(said)), notes


@pytest.mark.parametrize("value", [Share(0.5), 1, 0, float("inf")])
def test_how_far_it_is_is_told_as_a_plain_float(value: float) -> None:
    context, notes = context_and_notes()
    context.progress(value)
    assert type(notes[0][1]) is float


@pytest.mark.parametrize("value", [10**400, True, "half", 1j])
def test_what_is_no_such_number_is_refused_where_it_is_said(value: Any) -> None:
    context, notes = context_and_notes()
    with pytest.raises(NotSerializable, match="a number from 0 to 1"):
        context.progress(value)
    assert not notes
