"""What a parked job costs. FENCES, *What costs*."""

import gc
import tracemalloc

import pytest

from regista.model import AwaitTask, JobStatus, TaskWrite
from regista.storage.journal import JournalBatch
from regista.storage.state import State
from regista.testing.conformance.storage.kit import event, make_job, make_task, write

JOBS = 20_000
OVERHEAD = 2048


@pytest.mark.timeout(30)  # tracing every allocation is slow on a busy machine
def test_a_parked_job_costs_less_than_two_kib_beyond_its_own_bytes() -> None:
    def park(state: State, n: int) -> int:
        """Store one job with a waiting task, as the engine would; returns the bytes that they are."""
        job_id = f"{n:08x}-0000-7000-8000-000000000000"
        task = make_task(job_id, dispatch_by=None, params={"n": n})
        wait = AwaitTask(task.id)
        job = make_job(job_id, status=JobStatus.WAITING_FOR_WORKER, wait=wait, data={"n": n})
        batch = JournalBatch()
        state.apply(write(job, tasks=(TaskWrite(task),), events=(event(),)), batch, 1, "me", 0.0)
        state.outbox.prune(1 << 60)
        bodies = [row.body for row in batch.jobs.values()] + [body for body in batch.tasks.values() if body]
        return sum(map(len, bodies))

    state = State(0)
    park(state, JOBS)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        own = sum(park(state, n) for n in range(JOBS))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    overhead = (after - before - own) / JOBS
    print(f"{own / JOBS:.0f} bytes of its own, {overhead:.0f} around them")
    assert overhead < OVERHEAD


def test_nothing_is_left_of_jobs_that_have_ended() -> None:
    state = State(10)
    for n in range(1000):
        job = make_job(f"job-{n}", status=JobStatus.WAITING_FOR_WORKER, wait=AwaitTask("x"))
        task = make_task(job.id, dispatch_by=job.created_at)
        ended = make_job(f"job-{n}", revision=2, status=JobStatus.FINISHED)
        state.apply(write(job, tasks=(TaskWrite(task),), keep_lease_s=1.0), JournalBatch(), n, "me", float(n))
        state.apply(write(ended), JournalBatch(), n, "me", float(n))
        state.claim_ready("me", [("film", "v1")], 1, float(n), 30)
        state.forget_ended(n)
    assert (len(state._jobs), len(state.tasks), len(state.tasks.holders()), len(state.leases)) == (0, 0, 0, 0)
    assert (len(state.deadlines), len(state.tasks.queues), len(state.ready)) == (0, 0, 0)
    assert len(state._ended) == 10
