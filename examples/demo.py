"""The main job, with everybody in a process of their own: an orchestrator, two workers, a client. `make demo`.

Act one follows a video through a pipeline: a task that fails once, a way that depends on the data, three
renditions at once, a person's word, a pause, a child job. Act two kills the orchestrator in the middle.

The upper half of this file is the app, just as `regista serve examples/demo.py` and
`regista worker examples/demo.py` load it; the lower half starts them and plays the client.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from regista import (
    ActionFactory,
    Connection,
    JobContext,
    RetryPolicy,
    StateMachineBlueprint,
    SyncClient,
    TaskContext,
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

worker = Worker("studio", concurrency=2)


@worker.task("probe")
async def probe(params: dict[str, Any], context: TaskContext) -> dict[str, Any]:
    await asyncio.sleep(0.2)
    if context.attempt == 1:
        raise TransientError("the file server did not answer")
    return {"height": 2160}


@worker.task("encode")
async def encode(params: dict[str, Any], context: TaskContext) -> dict[str, Any]:
    for step in range(1, 6):
        await asyncio.sleep(params["height"] / 10_000)
        context.progress(step / 5)
    return {"file": f"video-{params['height']}p.mp4"}


@worker.task("grab_frame")
def grab_frame(params: dict[str, Any]) -> dict[str, Any]:  # a plain function runs in a thread
    return {"image": f"frame-{params['at_s']}s.jpg"}


@worker.task("leg")
async def leg(params: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0.4)
    return {"leg": params["leg"]}


# -- the play ------------------------------------------------------------------------------------


class Stage:
    """The processes of the demo, in a directory that goes away with them."""

    def __init__(self, folder: Path, exits: ExitStack) -> None:
        self._folder = folder
        self._exits = exits
        self._port = 0
        self.url = ""

    def serve(self) -> "subprocess.Popen[str]":
        """An orchestrator on the file of jobs; the second one takes the port of the first."""
        process = self._start("serve", __file__, "--port", str(self._port), "--json")
        assert process.stdout is not None
        self.url = json.loads(process.stdout.readline() or "{}").get("url", "")
        if not self.url:
            raise SystemExit(f"the orchestrator did not start; it said:\n{self.said('serve')}")
        self._port = int(self.url.rpartition(":")[2])
        return process

    def work(self) -> "subprocess.Popen[str]":
        """A worker process."""
        return self._start("worker", __file__, "--url", self.url)

    def run(self, *command: str) -> int:
        """A command in the foreground, on the same screen as ours."""
        whole = [sys.executable, "-m", "regista", *command, "--url", self.url]
        return subprocess.run([*whole, "--dir", str(self._folder)], check=False).returncode

    def client(self) -> SyncClient:
        """A client of the orchestrator."""
        return SyncClient(connection=Connection(url=self.url, state_dir=str(self._folder)))

    def said(self, name: str) -> str:
        """The log of a process."""
        return "".join(path.read_text() for path in sorted(self._folder.glob(f"{name}*.log")))

    def _start(self, *command: str) -> "subprocess.Popen[str]":
        number = len(list(self._folder.glob("*.log")))
        log = self._exits.enter_context((self._folder / f"{command[0]}-{number}.log").open("w"))
        whole = [sys.executable, "-m", "regista", *command, "--dir", str(self._folder)]
        process = subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=log, text=True)
        self._exits.callback(end, process)
        return process


def end(process: "subprocess.Popen[str]") -> None:
    """Tell it to stop; it drains and goes."""
    with process:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def act_one(stage: Stage) -> None:
    heading("Act one: a video is published")
    with stage.client() as client:
        job = client.submit("publish_video", {"title": "Holidays"})
        say(f"job {job.id} is accepted, and on disk\n")
        with approving(client, job.id):
            code = stage.run("jobs", "watch", job.id)
        say("\nhow long each state took:")
        show_timeline(client, job.id)
    if code != 0:
        raise SystemExit(f"expected a finished job, got exit code {code}; the log:\n{stage.said('serve')}")


@contextmanager
def approving(client: SyncClient, job_id: str) -> Iterator[None]:
    """Somebody at another desk who says yes as soon as the job asks, after a moment of thought."""

    def decide() -> None:
        for event in client.events(job_id):
            if event.type == "approval_requested":
                time.sleep(0.7)
                client.approve(job_id, "approve", comment="looks good")
                return

    desk = threading.Thread(target=decide, name="desk")
    desk.start()
    yield
    desk.join(10)


def show_timeline(client: SyncClient, job_id: str) -> None:
    """One bar per state, over the time of the whole job."""
    events = client.history(job_id)
    began, total = events[0].at, (events[-1].at - events[0].at).total_seconds()
    width, entered = 44, began
    for event in events:
        if event.type == "state_started":
            entered = event.at
        elif event.type == "state_finished":
            start = round((entered - began).total_seconds() / total * width)
            length = max(1, round((event.at - entered).total_seconds() / total * width))
            spent_ms = (event.at - entered).total_seconds() * 1000
            bar = (" " * start + "█" * length)[: width + 1].ljust(width + 1)
            say(f"  {event.state:<12}{bar} {spent_ms:6.0f} ms")


def act_two(stage: Stage, orchestrator: "subprocess.Popen[str]") -> None:
    heading("Act two: kill -9 in the middle of a job")
    with stage.client() as client:
        job = client.submit("relay")
        say(f"job {job.id} runs; the orchestrator is process {orchestrator.pid}")
        for event in client.events(job.id):
            if event.type == "task_finished":
                say("  the first leg is done")
                break
        orchestrator.send_signal(signal.SIGKILL)
        orchestrator.wait()
        say(f"  kill -9 {orchestrator.pid}. Another orchestrator starts on the same file:")
        stage.serve()
        job = client.wait(job.id, timeout_s=15)
    say(f"\n{bold(job.status.upper())}: {job.result}, and nobody submitted it twice")
    if job.status != "finished":
        raise SystemExit(f"expected a finished job, got {job.status}: {job.error}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="regista-demo-") as folder, ExitStack() as exits:
        stage = Stage(Path(folder), exits)
        orchestrator = stage.serve()
        workers = [stage.work(), stage.work()]
        say(f"an orchestrator at {stage.url} (process {orchestrator.pid}), ", end="")
        say(f"and two workers (processes {workers[0].pid} and {workers[1].pid})")
        act_one(stage)
        act_two(stage, orchestrator)
    say("\nThe demo ends here. `make test` proves the rest; docs/tutorial.md shows how to do it yourself.")


# -- words on a screen ---------------------------------------------------------------------------


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


def heading(text: str) -> None:
    say(f"\n{bold(text)}\n{'=' * len(text)}")


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text


if __name__ == "__main__":
    main()
