import subprocess
import sys
import time

import pytest

from tests.stopwatch import SCHEDULED, Stopwatch


def test_sleep_and_work_count() -> None:
    watch = Stopwatch()

    time.sleep(0.1)
    slept_s = watch.elapsed_s()
    ready = time.thread_time() + 0.1
    while time.thread_time() < ready:
        pass

    assert slept_s >= 0.09
    assert watch.elapsed_s() - slept_s >= 0.09


@pytest.mark.skipif(
    not SCHEDULED.exists(), reason="this system does not count how long threads wait for a core"
)
def test_what_the_neighbours_do_does_not() -> None:
    burn = "while True: pass"
    neighbours = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(4)]
    try:
        watch, wall = Stopwatch(), time.perf_counter()
        ready = time.thread_time() + 0.1
        while time.thread_time() < ready:
            pass
        took_s, wall_s = watch.elapsed_s(), time.perf_counter() - wall
    finally:
        for neighbour in neighbours:
            with neighbour:
                neighbour.kill()

    assert took_s < 0.2, f"{took_s:.2f} s of {wall_s:.2f} s on the wall"
