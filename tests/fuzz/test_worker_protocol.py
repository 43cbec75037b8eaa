"""Random messages of workers, valid, spoiled and senseless, for a minute (`make fuzz`: ten) at a real server.

No 5xx, no trace in its log, no connection that is stuck, and its memory stays where it was.
"""

import asyncio
import os
import re
import time
from pathlib import Path

import psutil
import pytest

from tests.acceptance.processes import House
from tests.fuzz.actors import SKILL, TOKENS, Stage

SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))
SEED = int(os.environ.get("FUZZ_SEED", "20261116"))
#: After this share of the time everything is warm, and memory may not grow by more than this any more.
WARM = 0.4
MOST_GROWTH = 48 * 2**20

APP = f"""
from regista import StateMachineBlueprint

work = StateMachineBlueprint("{SKILL}")


@work.handler_for("start", is_start=True)
def start(context, actions):
    actions.dispatch_task("{SKILL}", context.initial_data, transitions={{"success": "done", "failure": "done"}})


@work.handler_for("done", is_end=True)
def done(context, actions):
    actions.set_result(context.state_history)
"""
#: (what, answer) that the fuzz must have met, or it has tested nothing.
MUST_HAVE_MET = [
    ("submit", "202"), ("submit", "400"), ("register", "200"), ("register", "400"), ("register", "401"),
    ("beat", "200"), ("beat", "400"), ("poll", "200"), ("poll", "204"), ("poll", "400"), ("result", "accepted"),
    ("result", "ignored"), ("result", "400"), ("event", "200"), ("event", "400"), ("command socket", "open"),
    ("stream down", "WelcomeFrame"), ("stream down", "TaskFrame"), ("stream result", "accepted"), ("socket", "400"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(SECONDS + 120)
def test_whatever_workers_send_the_server_stays_well(tmp_path: Path) -> None:
    house = House(tmp_path, APP)
    house.set(**TOKENS, REGISTA_LEASE_SECONDS="5", WORKER_POLL_TIMEOUT_SECONDS="2")
    house.set(REGISTA_RATE_LIMITS='{"auth": "off", "empty_poll": "off"}')
    try:
        process = psutil.Process(house.serve("--json", "--storage", f"sqlite:{tmp_path / 'fuzz.db'}").pid)
        stage = Stage(house.url, SEED)
        warm, end = asyncio.run(_measure(stage, process))
        _print(stage, warm, end)
        log = house.logs()
        _check_log(log)
        assert stage.faults == [], f"seed {SEED}"
        met = {(what, answer) for what, _, answer in stage.counts}
        assert [one for one in MUST_HAVE_MET if one not in met] == []
        assert end - warm < MOST_GROWTH, f"{warm / 2**20:.0f} MiB became {end / 2**20:.0f}"
        house.until(lambda: _open(process) == 0, "every connection is closed")
    finally:
        house.close()


async def _measure(stage: Stage, process: psutil.Process) -> tuple[int, int]:
    """Bytes of memory when everything is warm, and at the end."""
    playing = asyncio.create_task(stage.play(SECONDS))
    await asyncio.sleep(SECONDS * WARM)
    warm: int = process.memory_info().rss
    await playing
    end: int = process.memory_info().rss
    return warm, end


def _open(process: psutil.Process) -> int:
    return sum(one.status == psutil.CONN_ESTABLISHED for one in process.net_connections("tcp"))


def _check_log(log: str) -> None:
    bad = [
        line[:2000] for line in log.splitlines() if re.search(r'Traceback|"level": "(ERROR|CRITICAL)"', line)
    ]
    ends = {line[-200:] for line in bad}
    assert bad == [], f"seed {SEED}: {len(bad)} lines that end like {ends}"


def _print(stage: Stage, warm: int, end: int) -> None:
    print(
        f"\n{SECONDS:.0f} s, seed {SEED}, {time.strftime('%H:%M:%S')}, {sum(stage.counts.values())} things said or heard"
    )
    for (what, mode, answer), count in sorted(stage.counts.items()):
        print(f"  {what:<16} {mode:<8} {answer:<28} {count:>7}")
    print(f"  memory: {warm / 2**20:.0f} MiB warm, {end / 2**20:.0f} MiB at the end")
