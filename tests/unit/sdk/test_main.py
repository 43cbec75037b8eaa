import logging

import pytest

from regista import Worker
from regista.config import WorkerConfig
from regista.sdk.main import _warn_of_queues


def test_queues_of_the_operator_that_overrule_those_of_several_workers_are_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpu, cpu, any_queue = Worker("gpu", queues=["q-gpu"]), Worker("cpu", queues=["q-cpu"]), Worker("any")
    caplog.set_level(logging.WARNING, "regista.worker")

    _warn_of_queues([gpu], WorkerConfig(queues=["q-cpu"]))  # one worker: that is what the flag is for
    _warn_of_queues([gpu, cpu], WorkerConfig())
    _warn_of_queues([cpu, any_queue], WorkerConfig(queues=["q-cpu"]))
    assert caplog.records == []

    _warn_of_queues([gpu, cpu], WorkerConfig(queues=["q-cpu"]))
    (line,) = caplog.records
    assert line.getMessage().startswith("gpu takes tasks of q-cpu only")
