"""A real `kill -9`, thirty times over: what was acknowledged is kept, and ends exactly once."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from regista import EventType, JobStatus
from regista.testing import invariants
from tests.chaos.files import Files
from tests.chaos.kill9_child import BRANCHES, blueprints, expected_result

CHILD = Path(__file__).with_name("kill9_child.py")
KILLS = 30
SEED = 20_240_229
#: Every so many lives is a longer one, so that "started" is on disk when it ends.
LONG_LIFE_EVERY = 5
#: Idempotency keys that a life sends again, from all lives before it.
REPLAYS = 10


@dataclass
class Diaries:
    """What the lives wrote down, all together."""

    #: id → (blueprint, n) of acknowledged jobs.
    acknowledged: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: key → (blueprint, n) of every submit that was tried, acknowledged or not.
    tried: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: key → the ids that it was ever answered with.
    answers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: id → (status, result) as waiters were told.
    ends: dict[str, tuple[str, object]] = field(default_factory=dict)
    replays: int = 0

    def read(self, diary: Path) -> None:
        for line in diary.read_text().splitlines():
            match line.split(" ", 3):
                case ["try", key, kind, n]:
                    self.replays += key in self.tried
                    self.tried[key] = (kind, int(n))
                case ["ack", job_id, kind, rest]:
                    n, key = rest.split()
                    assert self.acknowledged.get(job_id, (kind, int(n))) == (kind, int(n))
                    self.acknowledged[job_id] = (kind, int(n))
                    if key != "-":
                        self.answers[key].add(job_id)
                case ["end", job_id, status, result]:
                    told = (status, json.loads(result))
                    assert self.ends.setdefault(job_id, told) == told
                case ["ready"]:
                    pass
                case _:
                    raise AssertionError(f"an unknown line: {line!r}")


class Lives:
    """Starts the process, lets it live for a while, and kills it."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "jobs.db"
        self.diaries = Diaries()
        self._folder = folder
        self._chance = random.Random(SEED)
        self._number = 0

    def live_and_die(self) -> None:
        span_s = self._chance.uniform(0.05, 0.6) + (1.0 if self._number % LONG_LIFE_EVERY == 0 else 0.0)
        with self._life() as process:
            time.sleep(span_s)
            assert process.poll() is None, f"it died by itself:\n{self._stderr()}"

    def live_to_the_end(self) -> None:
        """Send every key again, run until no job lives, and leave in good order."""
        with self._life("--drain", replays=len(self.diaries.tried)) as process:
            # Tasks that were lost twice run alone, one after the other, so the last ones take a while.
            assert process.wait(timeout=150) == 0, self._stderr()

    @contextmanager
    def _life(self, *options: str, replays: int = REPLAYS) -> Iterator["subprocess.Popen[bytes]"]:
        """A process that has started; at the end it is killed, and its diary is read."""
        self._number += 1
        keys = sorted(self.diaries.tried)
        chosen = self._chance.sample(keys, min(replays, len(keys)))
        again = self._folder / f"replays-{self._number}"
        again.write_text(
            "".join(f"{key} {kind} {n}\n" for key in chosen for kind, n in [self.diaries.tried[key]])
        )
        arguments = [str(self.store), str(self._diary()), str(self._number), str(again), *options]
        command = [sys.executable, str(CHILD), *arguments]
        with self._log().open("wb") as stderr, subprocess.Popen(command, stderr=stderr) as process:
            try:
                self._wait_until_ready(process)
                yield process
            finally:
                process.send_signal(signal.SIGKILL)
        self.diaries.read(self._diary())

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]") -> None:
        while not (self._diary().exists() and self._diary().read_bytes().startswith(b"ready\n")):
            assert process.poll() is None, f"it did not start:\n{self._stderr()}"
            time.sleep(0.005)

    def _diary(self) -> Path:
        return self._folder / f"diary-{self._number}"

    def _log(self) -> Path:
        return self._folder / f"stderr-{self._number}"

    def _stderr(self) -> str:
        return self._log().read_text()


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_every_acknowledged_job_ends_exactly_once_through_thirty_kills(tmp_path: Path) -> None:
    began = time.monotonic()
    lives = Lives(tmp_path)

    for _ in range(KILLS):
        lives.live_and_die()
    lives.live_to_the_end()

    diaries, files = lives.diaries, Files.read(lives.store)
    _print_figures(diaries, files, time.monotonic() - began)
    _check_that_all_jobs_ended(diaries, files)
    _check_that_events_are_whole(files)
    _check_that_promises_were_kept(diaries, files)
    graphs = {(blueprint.name, blueprint.version): blueprint.graph for blueprint in blueprints()}
    invariants.check_history(graphs, files.events, files.jobs)


def _check_that_all_jobs_ended(diaries: Diaries, files: Files) -> None:
    assert diaries.acknowledged.keys() <= files.jobs.keys(), "an acknowledged job is gone"
    assert not files.live
    unfinished = {job.id: job.error for job in files.jobs.values() if job.status is not JobStatus.FINISHED}
    assert not unfinished  # acknowledged or not: whatever is there, ended, and ended well
    assert files.events.keys() == files.jobs.keys(), "a job without events, or events without a job"


def _check_that_events_are_whole(files: Files) -> None:
    for job_id, events in files.events.items():
        assert [event.seq for event in events] == list(range(1, len(events) + 1)), job_id
        kinds = [event.type for event in events]
        assert kinds[0] is EventType.JOB_CREATED
        assert kinds[-1] is EventType.JOB_FINISHED
        assert kinds.count(EventType.JOB_CREATED) == kinds.count(EventType.JOB_FINISHED) == 1, job_id
        results = Counter(event.task_id for event in events if event.type is EventType.TASK_FINISHED)
        assert set(results.values()) <= {1}, f"a result of {job_id} counted twice"
        if files.jobs[job_id].blueprint == "fan":
            assert len(results) == BRANCHES


def _check_that_promises_were_kept(diaries: Diaries, files: Files) -> None:
    for job_id, (kind, n) in diaries.acknowledged.items():
        job = files.jobs[job_id]
        assert (job.blueprint, job.result) == (kind, expected_result(kind, n))
    for job_id, (status, result) in diaries.ends.items():
        assert (files.jobs[job_id].status, files.jobs[job_id].result) == (status, result)
    assert diaries.answers.keys() == diaries.tried.keys()  # the last life sent all of them again
    assert {len(ids) for ids in diaries.answers.values()} == {1}, "one key, two jobs"
    inputs = Counter((job.blueprint, job.input["n"], job.parent_id) for job in files.jobs.values())
    assert max(inputs.values()) == 1, "one submit, or one parent's visit, made two jobs"
    children = Counter(job.parent_id for job in files.jobs.values() if job.parent_id)
    parents = {job.id for job in files.jobs.values() if job.blueprint == "parent"}
    assert children == dict.fromkeys(parents, 1)


def _print_figures(diaries: Diaries, files: Files, seconds: float) -> None:
    kinds = Counter(event.type for events in files.events.values() for event in events)
    print(
        f"\n{KILLS} kills in {seconds:.0f} s: {len(diaries.acknowledged)} jobs acknowledged, "
        f"{len(files.jobs)} stored (children and unacknowledged ones too), {len(diaries.ends)} ends seen, "
        f"{diaries.replays} keys sent again; "
        f"{kinds[EventType.TASK_LOST]} attempts lost, {kinds[EventType.TASK_UNDELIVERED]} undelivered, "
        f"{kinds[EventType.TASK_RETRIED]} retried, {sum(kinds.values())} events without a gap"
    )
