"""The main job, from submission to its end, and a job that outlives kill -9. Run by `make demo`.

Act one follows a video through a pipeline: a task that fails once, a way that depends on the data, three
renditions at once, a person's word, a pause, a child job. Act two kills the orchestrator in the middle.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from regista import (
    ActionFactory,
    Config,
    Event,
    EventType,
    Job,
    JobContext,
    JobStatus,
    OrchestratorEngine,
    RetryPolicy,
    StateMachineBlueprint,
    TransientError,
    Worker,
)

# -- the script: what leads to what --------------------------------------------------------------

video = StateMachineBlueprint("publish_video")
QUICK_RETRY = RetryPolicy(max_attempts=3, first_s=0.3)


@video.handler_for("ingest", is_start=True)
def ingest(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("probe", context.initial_data, transitions={"success": "plan"}, retry=QUICK_RETRY)


@video.handler_for("plan").when("context.state_history.height >= 2160")
def plan_large(context: JobContext, actions: ActionFactory) -> None:
    sizes = (2160, 1080, 480)
    actions.dispatch_parallel([{"type": "encode", "params": {"height": h}} for h in sizes], "review")


@video.handler_for("plan")
def plan_small(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("encode", {"height": 480}, transitions={"success": "review"})


@video.aggregator_for("review")
def review(context: JobContext, actions: ActionFactory) -> None:
    files = [result["data"]["file"] for result in context.aggregation_results.values()]
    context.state_history["files"] = files
    leads = {"approve": "embargo", "reject": "rejected"}
    actions.await_human_approval(f"Publish {', '.join(files)}?", transitions=leads)


@video.handler_for("embargo")
def embargo(context: JobContext, actions: ActionFactory) -> None:
    actions.sleep(0.5, then="illustrate")


@video.handler_for("illustrate")
def illustrate(context: JobContext, actions: ActionFactory) -> None:
    actions.run_blueprint("thumbnail", {"at_s": 42}, transitions={"success": "published"})


@video.handler_for("published", is_end=True)
def published(context: JobContext, actions: ActionFactory) -> None:
    thumbnail = context.state_history["child_thumbnail"]["result"]
    actions.set_result({"files": context.state_history["files"], "thumbnail": thumbnail})


@video.handler_for("rejected", is_end=True, outcome="failed")
def rejected(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result("rejected")


thumbnail = StateMachineBlueprint("thumbnail")


@thumbnail.handler_for("grab", is_start=True)
def grab(context: JobContext, actions: ActionFactory) -> None:
    actions.dispatch_task("grab_frame", context.initial_data, transitions={"success": "grabbed"})


@thumbnail.handler_for("grabbed", is_end=True)
def grabbed(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result(context.state_history["image"])


#: For act two: four tasks, one after the other.
relay = StateMachineBlueprint("relay")
LEGS = 4


@relay.handler_for("run", is_start=True)
def run_leg(context: JobContext, actions: ActionFactory) -> None:
    if context.state_history.get("leg", 0) < LEGS:
        leg = context.state_history.get("leg", 0) + 1
        actions.dispatch_task("leg", {"leg": leg}, transitions={"success": "run"})
    else:
        actions.transition_to("finish")


@relay.handler_for("finish", is_end=True)
def finish(context: JobContext, actions: ActionFactory) -> None:
    actions.set_result(f"{context.state_history['leg']} of {LEGS} legs")


# -- the performer: who does the work ------------------------------------------------------------


def performer() -> Worker:
    worker = Worker("studio", concurrency=4)
    tried: set[str] = set()

    @worker.task("probe")
    async def probe(params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.1)
        if params["title"] not in tried:
            tried.add(params["title"])
            raise TransientError("the file server did not answer")
        return {"height": 2160}

    @worker.task("encode")
    async def encode(params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(params["height"] / 4000)
        return {"file": f"video-{params['height']}p.mp4"}

    @worker.task("grab_frame")
    def grab_frame(params: dict[str, Any]) -> dict[str, Any]:  # a plain function runs in a thread
        return {"image": f"frame-{params['at_s']}s.jpg"}

    @worker.task("leg")
    async def leg(params: dict[str, Any]) -> dict[str, Any]:
        say(f"    leg {params['leg']} of {LEGS} (process {os.getpid()})")
        await asyncio.sleep(0.3)
        return {"leg": params["leg"]}

    return worker


def director_on(file: Path) -> OrchestratorEngine:
    director = OrchestratorEngine(f"sqlite:{file}", Config(watcher_interval_s=0.05))
    for blueprint in (video, thumbnail, relay):
        director.register_blueprint(blueprint)
    director.add_worker(performer())
    return director


# -- the play ------------------------------------------------------------------------------------


async def act_one(folder: Path) -> None:
    heading("Act one: a video is published")
    async with director_on(folder / "one.db") as director:
        job = await director.submit("publish_video", {"title": "Holidays"})
        say(f"job {job.id} is accepted, and on disk\n")
        events = await follow(director, job)
        job = await director.wait(job.id, timeout_s=10)
    say("\nhow long each state took:")
    show_timeline(events)
    say(f"\n{bold(job.status.upper())}: {job.result}")
    if job.status is not JobStatus.FINISHED:
        raise SystemExit(f"expected a finished job, got {job.status}: {job.error}")


async def follow(director: OrchestratorEngine, job: Job) -> list[Event]:
    """Print what happens as it happens, and give the approval when it is asked for."""
    events: list[Event] = []
    while not events or events[-1].type is not EventType.JOB_FINISHED:
        for event in await director.events(job.id, after_seq=len(events)):
            events.append(event)
            since = (event.at - events[0].at).total_seconds()
            say(f"  {since:6.3f} s  {event.type:<18}  {told(event)}".rstrip())
            if event.type is EventType.APPROVAL_REQUESTED:
                say(dim("            (this script says: approve)"))
                await director.approve(job.id, "approve", comment="looks good")
        await asyncio.sleep(0.02)
    return events


def told(event: Event) -> str:
    """The part of an event that tells it from the others of its kind."""
    match event.type:
        case EventType.STATE_STARTED:
            return bold(str(event.state))
        case EventType.STATE_FINISHED:
            return f"{event.state} → {event.next_state or 'the end'}"
        case (
            EventType.TASK_DISPATCHED
            | EventType.TASK_STARTED
            | EventType.TASK_FINISHED
            | EventType.TASK_RETRIED
        ):
            number = str(event.task_id).rpartition("_")[2]
            return dim(f"task {number}, attempt {event.attempt}")
        case EventType.JOB_CREATED | EventType.JOB_FINISHED:
            return str(event.status)
        case _:
            return event.message or ""


def show_timeline(events: list[Event]) -> None:
    """One bar per state, over the time of the whole job."""
    began, total = events[0].at, (events[-1].at - events[0].at).total_seconds()
    width, entered = 44, began
    for event in events:
        if event.type is EventType.STATE_STARTED:
            entered = event.at
        elif event.type is EventType.STATE_FINISHED:
            start = round((entered - began).total_seconds() / total * width)
            length = max(1, round((event.at - entered).total_seconds() / total * width))
            spent_ms = (event.at - entered).total_seconds() * 1000
            bar = (" " * start + "█" * length)[: width + 1].ljust(width + 1)
            say(f"  {event.state:<12}{bar} {spent_ms:6.0f} ms")


async def act_two(folder: Path) -> None:
    heading("Act two: kill -9 in the middle of a job")
    file = folder / "two.db"
    command = [sys.executable, __file__, "--relay", str(file)]
    # Nothing else runs in this loop, so it may block.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        job_id = process.stdout.readline().strip()
        say(f"job {job_id} runs in process {process.pid}:")
        for line in process.stdout:
            say(line.rstrip())
            if "leg 2" in line:
                process.send_signal(signal.SIGKILL)
                break
    say(f"  kill -9 {process.pid}. Another orchestrator starts on the same file:")
    async with director_on(file) as director:
        job = await director.wait(job_id, timeout_s=10)
        say(f"\n{bold(job.status.upper())}: {job.result}, and nobody submitted it twice")
    if job.status is not JobStatus.FINISHED:
        raise SystemExit(f"expected a finished job, got {job.status}: {job.error}")


async def relay_until_killed(file: Path) -> None:
    """The process that act two kills."""
    async with director_on(file) as director:
        job = await director.submit("relay")
        say(job.id)
        await director.wait(job.id)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--relay", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.relay:
        await relay_until_killed(asked.relay)
        return
    with tempfile.TemporaryDirectory(prefix="regista-demo-") as folder:
        await act_one(Path(folder))
        await act_two(Path(folder))
    say("\nThe demo ends here. `make test` proves the rest; docs/ tells it.")


# -- words on a screen ---------------------------------------------------------------------------


def say(text: str) -> None:
    print(text, flush=True)


def heading(text: str) -> None:
    say(f"\n{bold(text)}\n{'=' * len(text)}")


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text


def dim(text: str) -> str:
    return f"\033[2m{text}\033[0m" if sys.stdout.isatty() else text


if __name__ == "__main__":
    asyncio.run(main())
