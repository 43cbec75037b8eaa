from regista.observe.meters import Meters
from regista.observe.prometheus import prometheus_page
from tests.prometheus_text import parse, value


def page(meters: Meters) -> str:
    return prometheus_page(meters).decode()


def test_counters_and_gauges_are_lines_with_labels() -> None:
    meters = Meters()
    meters.counter("things_total", "All things.", "kind").add(("a",), 2)
    meters.gauge("level", "The level.").set(0.5)

    assert page(meters).splitlines() == [
        "# HELP things_total All things.",
        "# TYPE things_total counter",
        'things_total{kind="a"} 2.0',
        "# HELP level The level.",
        "# TYPE level gauge",
        "level 0.5",
    ]


def test_buckets_are_cumulative_and_end_at_infinity() -> None:
    meters = Meters()
    histogram = meters.histogram("wait_seconds", "Waiting.", "queue", bounds=(0.5, 1))
    for seconds in (0.25, 0.75, 9):
        histogram.observe(seconds, ("q",))

    assert page(meters).splitlines()[2:] == [
        'wait_seconds_bucket{le="0.5",queue="q"} 1.0',
        'wait_seconds_bucket{le="1.0",queue="q"} 2.0',
        'wait_seconds_bucket{le="+Inf",queue="q"} 3.0',
        'wait_seconds_count{queue="q"} 3.0',
        'wait_seconds_sum{queue="q"} 10.0',
    ]


def test_what_users_call_their_queues_cannot_break_a_line() -> None:
    meters = Meters()
    hostile = 'q"} 1\nevil_total 9\\'
    meters.gauge("length", "Length.", "queue").set(4, (hostile,))

    found = parse(page(meters))

    assert set(found) == {"length"}
    assert value(found, "length") == 4


def test_a_metric_that_was_never_set_has_no_line() -> None:
    meters = Meters()
    meters.counter("things_total", "Things.", "kind")

    assert page(meters).strip() == ""
