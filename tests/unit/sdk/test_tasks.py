"""What a worker says about itself."""

from typing import Any

import pytest

from regista.errors import NotSerializable
from regista.worker import Worker


def worker_with(**tasks: str | None) -> Worker:
    worker = Worker("w")
    for name, queue in tasks.items():
        worker.task(name, queue=queue)(lambda params: None)
    return worker


def test_without_a_word_a_worker_serves_any_queue() -> None:
    assert worker_with(cut=None, paint=None).queues is None


def test_a_task_with_a_queue_narrows_the_worker_to_the_queues_of_its_tasks() -> None:
    assert worker_with(cut="q-gpu", paint=None).queues == ("q-gpu", "paint")


def test_the_queues_of_the_worker_and_of_its_tasks_are_joined() -> None:
    worker = Worker(queues=["a"])
    worker.task("cut", queue="b")(lambda params: None)

    assert worker.queues == ("a", "b")


def test_limits_are_those_of_the_tasks_that_have_one() -> None:
    worker = worker_with(cut=None)
    worker.task("paint", concurrency=2)(lambda params: None)

    assert worker.limits == {"paint": 2}
    with pytest.raises(ValueError, match=r"'glue'.*at least 1"):
        worker.task("glue", concurrency=0)


def test_what_is_hot_comes_and_goes() -> None:
    worker = Worker(hot=["llama"])
    worker.add_hot("sdxl", "llama")
    assert list(worker.hot) == ["llama", "sdxl"]
    worker.remove_hot("llama", "unknown")
    assert list(worker.hot) == ["sdxl"]


@pytest.mark.parametrize("what", ["labels", "software", "cost_per_skill", "models"])
def test_what_no_orchestrator_could_be_told_is_refused_where_it_is_said(what: str) -> None:
    odd: dict[str, Any] = {what: {"x": object()}}
    with pytest.raises(NotSerializable, match=f"{what} of a worker"):
        Worker("w", **odd)


def test_what_is_hot_has_a_name() -> None:
    worker = Worker("w", hot=["a"])
    with pytest.raises(TypeError, match="names of skills or models"):
        worker.add_hot(5)  # type: ignore[arg-type]
    assert worker.hot == ("a",)
