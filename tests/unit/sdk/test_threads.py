"""Threads for plain functions."""

import subprocess
import sys
import threading
import time

import pytest

from regista.sdk.threads import DaemonThreadPool


def test_calls_run_at_once_up_to_the_size_and_threads_are_used_again() -> None:
    threads = DaemonThreadPool(2, "test")
    gate, seen = threading.Event(), set()

    def work() -> str:
        seen.add(threading.current_thread().name)
        gate.wait(5)
        return "done"

    futures = [threads.submit(work) for _ in range(4)]
    time.sleep(0.05)
    assert len(seen) == 2
    gate.set()

    assert [future.result(5) for future in futures] == ["done"] * 4
    assert len(seen) == 2
    threads.shutdown()


def test_an_error_is_the_caller_s_and_the_thread_goes_on() -> None:
    threads = DaemonThreadPool(1, "test")

    assert isinstance(threads.submit(int, "x").exception(5), ValueError)
    assert threads.submit(int, "5").result(5) == 5
    threads.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        threads.submit(int, "5")


def test_idle_threads_end_with_the_shutdown() -> None:
    threads = DaemonThreadPool(3, "ending")
    for _ in range(3):
        threads.submit(time.sleep, 0.01)
    threads.shutdown()
    deadline = time.monotonic() + 5
    while any(each.name.startswith("ending") for each in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_function_that_never_returns_does_not_keep_the_process() -> None:
    program = (
        "import threading; from regista.sdk.threads import DaemonThreadPool;"
        "t = DaemonThreadPool(1, 'x'); t.submit(threading.Event().wait); t.shutdown()"
    )

    assert subprocess.run([sys.executable, "-c", program], timeout=8).returncode == 0


def test_a_call_for_which_there_is_no_thread_is_refused_and_never_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = DaemonThreadPool(2, "t")
    made: list[str] = []

    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as machine:
        machine.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError, match="start new thread"):
            threads.submit(made.append, "refused")
    threads.submit(made.append, "taken").result(5)
    threads.submit(made.append, "too").result(5)
    threads.shutdown()
    assert made == ["taken", "too"]
