"""Directories on this machine: made when asked for, gone with their job, and with their process."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regista.payloads.scratch import ScratchDirectory

#: A process that makes a directory and waits to be killed.
CHILD = """
import sys, time
from regista.payloads.scratch import ScratchDirectory
scratch = ScratchDirectory(sys.argv[1])
(scratch.folder("j1", "a1") / "big").write_bytes(b"x")
print("there", flush=True)
time.sleep(60)
"""


def test_nothing_is_made_before_somebody_asks(tmp_path: Path) -> None:
    scratch = ScratchDirectory(str(tmp_path / "base"))

    assert scratch.names() == []
    scratch.drop("j1")
    scratch.close()

    assert not (tmp_path / "base").exists()


def test_a_directory_is_there_and_gone_with_its_attempt_and_its_job(tmp_path: Path) -> None:
    scratch = ScratchDirectory(str(tmp_path))
    first, second = scratch.folder("j1", "a1"), scratch.folder("j1", "a2")
    (first / "deep").mkdir()
    (first / "deep" / "file").write_text("x")
    scratch.folder("j2", "a1")
    assert scratch.names() == ["j1", "j2"]

    scratch.drop("j1", "a1")
    assert (first.exists(), second.exists()) == (False, True)
    scratch.drop("j1", "a2")
    assert scratch.names() == ["j2"]
    scratch.drop("j2")
    scratch.drop("j2")

    assert scratch.names() == []
    scratch.close()
    scratch.close()
    assert list(tmp_path.iterdir()) == []


def test_nobody_else_can_look_into_them(tmp_path: Path) -> None:
    scratch = ScratchDirectory(str(tmp_path))

    folder = scratch.folder("j1")

    assert folder.stat().st_mode & 0o077 == 0
    assert folder.parent.stat().st_mode & 0o077 == 0
    scratch.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_what_a_killed_process_left_is_swept_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as dead,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as alive,
    ):
        for child in (dead, alive):
            assert child.stdout is not None
            assert child.stdout.readline() == "there\n"
        dead.kill()
        dead.wait()
        scratch = ScratchDirectory(str(tmp_path))
        own = scratch.folder("j9")

        assert scratch.sweep() == 1

        left = sorted(each.name.split("-")[0] for each in tmp_path.iterdir())
        assert left == sorted([str(alive.pid), own.parent.name.split("-")[0]])
        assert scratch.sweep() == 0
        alive.kill()
        alive.wait()
        assert scratch.sweep() == 1
        scratch.close()


def test_a_directory_that_is_being_made_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may sweep at any moment: also between the making of the lock file and its lock."""
    lock, swept = fcntl.flock, []

    def sweep_first(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        swept.append(ScratchDirectory(str(tmp_path)).sweep())
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    scratch = ScratchDirectory(str(tmp_path))
    folder = scratch.folder("j1")

    assert swept == [0]
    assert folder.parent.stat().st_mode & 0o077 == 0
    assert ScratchDirectory(str(tmp_path)).sweep() == 0
    assert folder.is_dir()
    scratch.close()


def test_a_directory_that_a_process_left_before_it_was_locked_is_swept_later(tmp_path: Path) -> None:
    unlocked = tmp_path / "new-1-abc"
    unlocked.mkdir()
    (unlocked / ".lock").touch()

    assert ScratchDirectory(str(tmp_path)).sweep() == 0
    os.utime(unlocked, (0, 0))
    assert ScratchDirectory(str(tmp_path)).sweep() == 1
    assert list(tmp_path.iterdir()) == []
