import pytest

from regista.observe.meters import MAX_SERIES, OTHER, Meters


def test_a_counter_counts_each_row_of_labels_apart() -> None:
    counter = Meters().counter("things_total", "Things.", "kind")

    counter.add(("a",))
    counter.add(("a",), 2)
    counter.add(("b",))

    assert counter.values == {("a",): 3, ("b",): 1}


def test_a_counter_without_labels_begins_at_zero() -> None:
    assert Meters().counter("things_total", "Things.").values == {(): 0}


def test_names_that_users_choose_do_not_fill_the_memory() -> None:
    counter = Meters().counter("things_total", "Things.", "name", "kind")

    for number in range(MAX_SERIES + 100):
        counter.add((f"n{number}", "k"))

    assert len(counter.values) == MAX_SERIES + 1
    assert counter.values[OTHER, OTHER] == 100


def test_a_row_of_the_wrong_length_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="expected the labels"):
        Meters().counter("things_total", "Things.", "kind").add(("a", "b"))


def test_a_gauge_that_is_filled_forgets_what_is_gone() -> None:
    gauge = Meters().gauge("length", "Length.", "queue")
    gauge.fill({("a",): 1, ("b",): 2})

    gauge.fill({("b",): 3})

    assert gauge.values == {("b",): 3}


def test_a_histogram_puts_a_value_into_the_first_bucket_whose_bound_is_not_below_it() -> None:
    histogram = Meters().histogram("seconds", "Seconds.", bounds=(0.1, 1))

    for value in (0.05, 0.1, 0.5, 7):
        histogram.observe(value)

    (series,) = histogram.values.values()
    assert series.counts == [2, 1, 1]
    assert series.total == pytest.approx(7.65)
    assert (series.smallest, series.largest) == (0.05, 7)


def test_a_histogram_is_bounded_too() -> None:
    histogram = Meters().histogram("seconds", "Seconds.", "queue", bounds=(1,))

    for number in range(MAX_SERIES + 5):
        histogram.observe(0.5, (f"q{number}",))

    assert histogram.values[(OTHER,)].counts == [5, 0]


def test_two_metrics_of_one_name_are_a_mistake() -> None:
    meters = Meters()
    meters.counter("things_total", "Things.")

    with pytest.raises(ValueError, match="there already"):
        meters.gauge("things_total", "Things.")


def test_many_values_at_once_fall_like_one_by_one() -> None:
    # given
    seconds = Meters().histogram("seconds", "Seconds.", "kind", bounds=(0.1, 1))
    seconds.observe(0.5, ("a",))
    # when
    seconds.observe_all([0.05, 0.1], ("a",))
    seconds.observe_all([7.0], ("b",))
    # then
    a, b = seconds.values[("a",)], seconds.values[("b",)]
    assert (a.counts, a.smallest, a.largest) == ([2, 1, 0], 0.05, 0.5)
    assert a.total == pytest.approx(0.65)
    assert (b.counts, b.total) == ([0, 0, 1], 7.0)
