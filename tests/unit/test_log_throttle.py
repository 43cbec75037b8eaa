from regista.log_throttle import LogThrottle


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def elapsed(self) -> float:
        return self.now


def test_line_about_a_key_is_due_once_in_a_period() -> None:
    clock = Clock()
    throttle = LogThrottle(clock.elapsed, 60.0)
    assert [throttle.is_due(key) for key in ("a", "a", "b", "a")] == [True, False, True, False]
    clock.now = 59.0
    assert not throttle.is_due("a")
    clock.now = 60.0
    assert throttle.is_due("a")


def test_number_of_keys_is_bounded_and_new_keys_are_due_again_after_a_period() -> None:
    clock = Clock()
    throttle = LogThrottle(clock.elapsed, 60.0, max_keys=3)
    assert [throttle.is_due(key) for key in "abcd"] == [True, True, True, False]
    clock.now = 61.0
    assert throttle.is_due("d")
    assert throttle.is_due("a")
