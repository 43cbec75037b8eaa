"""Explain: why does this task not run, for how many workers, and what would change that? Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from ..model import AttemptState, QueueKey, QueueStatus, Task, Worker
from ..model.explanation import Explanation, Reason, Score
from .classes import WorkerClass
from .filters import Mismatch, mismatches
from .strategies import cost, is_warm, strategy_of

#: Different details that one reason names; the rest is counted.
_DETAILS = 3


class ClassFacts(Struct, frozen=True, kw_only=True):
    """One class of workers at this moment."""

    worker: Worker
    workers: int = 1
    draining: int = 0
    #: One of those that drain.
    drained: str = ""
    #: Workers whose stream is closed, and that have not come back.
    cut: int = 0
    #: Workers that take no offers right now, though they have slots: no poll is open.
    no_poll: int = 0
    #: Workers whose slots, or whose limit for the skill, are taken.
    full: int = 0
    #: Slots that are free for the skill.
    free: int = 0
    #: Connected to another instance, which alone knows their slots.
    elsewhere: bool = False


def class_facts(classes: Iterable[WorkerClass], others: Iterable[Worker], skill: str) -> list[ClassFacts]:
    """Everybody: those who sit here, by class, and those who are connected elsewhere."""
    facts = [_facts(kind, skill) for kind in classes]
    return facts + [_facts_elsewhere(worker) for worker in others]


def _facts_elsewhere(worker: Worker) -> ClassFacts:
    """Its slots are known there alone; that it is cut off, or was told to drain, stands in its record."""
    if worker.disconnected_at is not None:
        return ClassFacts(worker=worker, cut=1)
    if worker.draining:
        return ClassFacts(worker=worker, draining=1, drained=worker.id)
    return ClassFacts(worker=worker, elsewhere=True)


def _facts(worker_class: WorkerClass, skill: str) -> ClassFacts:
    members = list(worker_class.members)
    cut = [connected for connected in members if connected.disconnected_at is not None]
    draining = [
        connected for connected in members if connected.draining and connected.disconnected_at is None
    ]
    awake = [
        connected for connected in members if not connected.draining and connected.disconnected_at is None
    ]
    no_poll = [
        connected
        for connected in awake
        if connected.credit == 0 and len(connected.attempts) < connected.worker.capacity
    ]
    return ClassFacts(
        worker=worker_class.worker,
        workers=len(members),
        draining=len(draining),
        drained=draining[0].worker.id if draining else "",
        cut=len(cut),
        no_poll=len(no_poll),
        full=sum(connected.room_for(skill) == 0 for connected in awake) - len(no_poll),
        free=sum(connected.room_for(skill) for connected in awake),
    )


def explain(task: Task, lanes: Sequence[QueueStatus], classes: Sequence[ClassFacts]) -> Explanation:
    """Every condition that keeps the task from a worker."""
    state = task.state
    if state is AttemptState.CLOSED:
        return _told(task, f"Task {task.id} is over.", None)
    if state is not AttemptState.QUEUED:
        doing = "runs on" if state is AttemptState.STARTED else "was offered to"
        return _told(
            task,
            f"Attempt {task.attempt} {doing} worker {task.worker_id!r}.",
            task.started_at or task.offered_at,
        )
    if task.not_before is not None:
        reason = Reason(
            "paused_until",
            _paused(task),
            f"wait, or cancel the job; what went wrong is in its events: regista jobs history {task.job_id}",
        )
        return _told(task, f"Task {task.id} is paused until {_at(task.not_before)}.", task.queued_at, reason)
    # The nearest miss first: whoever may do it and is busy, then those whom one thing keeps away.
    reasons = [*_unready(task, lanes, classes), *_unfit(task.queue_key, classes)]
    return _told(task, _summary(task, classes), task.queued_at, *reasons)


def _summary(task: Task, classes: Sequence[ClassFacts]) -> str:
    able = sum(facts.workers for facts in classes if not any(mismatches(task.queue_key, facts.worker)))
    them = "worker" if able == 1 else "workers"
    if not classes:
        return f"Task {task.id} waits: no worker is connected."
    if not able:
        return f"Task {task.id} waits: none of {sum(f.workers for f in classes)} workers may do it."
    return f"Task {task.id} waits for a free slot of {able} {them}."


def _unfit(queue_key: QueueKey, classes: Sequence[ClassFacts]) -> list[Reason]:
    """What the filters say against each worker, by code; first what keeps those away who lack least."""
    found: dict[str, list[tuple[Mismatch, int]]] = {}
    nearest: dict[str, tuple[bool, int]] = {}
    for facts in classes:
        against = list(mismatches(queue_key, facts.worker))
        # Whoever has the skill is nearer than whoever has not, whatever else is missing.
        far = queue_key.type not in facts.worker.skills, len(against)
        for blocker in against:
            found.setdefault(blocker.code, []).append((blocker, facts.workers))
            nearest[blocker.code] = min(far, nearest.get(blocker.code, far))
    reasons = [_merged(code, found[code]) for code in sorted(found, key=lambda code: nearest[code])]
    if any(queue_key.type in facts.worker.skills for facts in classes):
        return reasons
    start = f"start a worker that has the skill {queue_key.type!r}"
    there = sum(facts.workers for facts in classes)
    alone = Reason("no_worker_with_skill", f"no worker has the skill {queue_key.type!r}", start, there)
    return [alone, *(reason for reason in reasons if reason.code != "skill_missing")]


def _merged(code: str, cases: list[tuple[Mismatch, int]]) -> Reason:
    details = list(dict.fromkeys(blocker.detail for blocker, _ in cases))
    shown = "; ".join(details[:_DETAILS])
    if len(details) > _DETAILS:
        shown += f"; and {len(details) - _DETAILS} more"
    return Reason(code, shown, cases[0][0].unblock, sum(workers for _, workers in cases))


def _unready(task: Task, lanes: Sequence[QueueStatus], classes: Sequence[ClassFacts]) -> list[Reason]:
    """Why those who may do it do not."""
    able = [facts for facts in classes if not any(mismatches(task.queue_key, facts.worker))]
    line = _line(task, lanes)
    reasons = []
    if task.isolated:
        alone = f"{task.lost_runs} of its attempts were lost, so it runs alone: it waits until a worker has nothing else"
        reasons.append(Reason("runs_alone", alone, "wait, or start a worker"))
    if free := sum(facts.free for facts in able):
        reasons.append(Reason("about_to_start", f"{free} slots are free; {line}", "wait a moment"))
    if full := sum(facts.full for facts in able):
        busy = f"all slots are taken; {line}"
        reasons.append(Reason("all_busy", busy, "start more workers, or raise the priority", full))
    if elsewhere := sum(facts.workers for facts in able if facts.elsewhere):
        there = "connected to another instance, which knows whether they are free"
        reasons.append(Reason("elsewhere", there, "ask there", elsewhere))
    if no_poll := sum(facts.no_poll for facts in able):
        closed = "takes no offers right now: it has no poll open"
        reasons.append(Reason("no_open_poll", closed, "it takes one with its next poll", no_poll))
    if cut := sum(facts.cut for facts in able):
        gone = "is not connected: its stream is closed, and it has not come back"
        reasons.append(Reason("disconnected", gone, "start it again, or start others", cut))
    if draining := sum(facts.draining for facts in able):
        reasons.append(Reason("draining", "takes no new tasks", _undrain(able), draining))
    return reasons


def _line(task: Task, lanes: Sequence[QueueStatus]) -> str:
    here = [status for status in lanes if status.queue_key == task.queue_key]
    mine = sum(status.waiting for status in here if status.client == task.client)
    text = f"{mine} in line"
    others = len([status for status in here if status.client != task.client])
    return f"{text}, taking turns with {others} other clients" if others else text


def _paused(task: Task) -> str:
    runs = [f"{n} {what}" for n, what in ((task.failed_runs, "failed"), (task.lost_runs, "lost")) if n]
    behind = f" follows {' and '.join(runs)}" if runs else ""
    return f"attempt {task.attempt}{behind}; it is tried again at {_at(task.not_before)}"


def _told(task: Task, summary: str, since: datetime | None, *reasons: Reason) -> Explanation:
    return Explanation(kind="task", id=task.id, summary=summary, since=since, reasons=reasons)


def _undrain(able: Sequence[ClassFacts]) -> str:
    """What an operator can send to take a drained worker back."""
    one = next((facts.drained for facts in able if facts.drained), "{worker_id}")
    return f'start others, or take one back: POST /api/v1/workers/{one}/drain with {{"on": false}}'


def _at(when: datetime | None) -> str:
    return when.isoformat(timespec="seconds") if when is not None else "some time"


# -- dry run -------------------------------------------------------------------------------------


def dry_run(task: Task, classes: Iterable[WorkerClass]) -> list[Score]:
    """Who would get the task, best first, and why; then those who would not. Nothing is assigned."""
    queue_key = task.queue_key
    scores = [_score(queue_key, kind) for kind in classes]
    return sorted(scores, key=lambda score: (not score.fits, score.free == 0, score.score))


def _score(queue_key: QueueKey, worker_class: WorkerClass) -> Score:
    strategy, worker = strategy_of(queue_key), worker_class.worker
    free = sum(connected.room_for(queue_key.type) for connected in worker_class.members)
    against = [blocker.detail for blocker in mismatches(queue_key, worker)]
    if against:
        return Score(worker.id, len(worker_class.members), free, False, (), "; ".join(against))
    head = worker_class.next_free(queue_key.type)
    static_rank = strategy.static_rank(worker, queue_key)
    if head is None:
        return Score(worker.id, len(worker_class.members), free, True, static_rank, "no free slot")
    price = f"{'warm' if is_warm(worker, queue_key) else 'cold'}, {cost(worker, queue_key):g} per second"
    why = f"{strategy.description}: {price}, {head.free} free, {len(head.attempts)} held"
    return Score(
        head.worker.id,
        len(worker_class.members),
        free,
        True,
        (*static_rank, float(strategy.dynamic_rank(head))),
        why,
    )
