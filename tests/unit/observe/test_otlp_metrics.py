import asyncio
from typing import Any

import pytest

from regista.observe.meters import Meters
from regista.observe.otlp_metrics import MetricsPusher, OtlpRecords
from tests.otlp_receiver import Receiver
from tests.ports import free_port


def some() -> OtlpRecords:
    meters = Meters()
    meters.counter("things_total", "Things.", "kind").add(("a",), 3)
    meters.gauge("level", "The level.").set(7)
    histogram = meters.histogram("wait_seconds", "Waiting.", bounds=(1, 5))
    for seconds in (0.5, 2, 9):
        histogram.observe(seconds)
    return OtlpRecords(meters, {"service.name": "regista"})


async def test_metrics_arrive_at_a_receiver_as_they_were_counted() -> None:
    with Receiver() as receiver:
        pusher = MetricsPusher(some().collect, f"{receiver.url}/v1/metrics", interval_s=0.02)
        pusher.start()
        pusher.start()
        await asyncio.sleep(0.2)
        await pusher.stop()
        await pusher.stop()

    assert receiver.services == {"regista"}
    (count,) = receiver.metrics["things_total"].sum.data_points
    assert count.as_int == 3
    assert receiver.metrics["things_total"].sum.is_monotonic
    assert receiver.metrics["level"].gauge.data_points[0].as_int == 7
    (fall,) = receiver.metrics["wait_seconds"].histogram.data_points
    assert (list(fall.bucket_counts), fall.count, fall.sum) == ([1, 1, 1], 3, 11.5)
    assert receiver.metrics["wait_seconds"].unit == "s"


async def test_a_receiver_that_is_away_is_told_of_once_and_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pusher = MetricsPusher(some().collect, f"http://127.0.0.1:{free_port()}/v1/metrics", timeout_s=0.3)

    assert not await pusher.push()
    assert not await pusher.push()

    ours = [record for record in caplog.records if record.name == "regista.observe"]
    assert len(ours) == 1


async def test_metrics_that_cannot_be_collected_keep_nobody_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> Any:
        raise ValueError("a bug")

    pusher = MetricsPusher(fail, f"http://127.0.0.1:{free_port()}/v1/metrics", timeout_s=0.3)
    pusher.start()
    await pusher.stop()
    assert "the last metrics were not sent" in caplog.text
