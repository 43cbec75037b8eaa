"""Random stories: what stores tell, also when they forgot something, and how recorders hand it on."""

from hypothesis import strategies as st
from msgspec.structs import replace

from regista.model import OutboxEntry
from regista.testing.conformance.history import make_entry, make_summary

JOBS = ("a", "b", "c")
_STATUSES = (None, "running", "failed", "finished")


@st.composite
def batches(draw: st.DrawFn) -> list[list[OutboxEntry]]:
    """What is recorded, call by call.

    Numbers grow. A job's story goes on behind its last entry, or begins anew where an earlier one began; and what
    was handed on once may be handed on again, later.
    """
    begins: dict[str, list[int]] = {job_id: [1] for job_id in JOBS}
    told: list[OutboxEntry] = []
    for number in range(1, draw(st.integers(0, 12)) + 1):
        job_id = draw(st.sampled_from(JOBS))
        places = begins[job_id]
        if draw(st.booleans()) and draw(st.booleans()):
            del places[draw(st.integers(1, len(places))) :]
        events = draw(st.integers(1, 4))
        status = draw(st.sampled_from(_STATUSES))
        summary = make_summary(job_id, status) if status else None
        entry = make_entry(number, job_id, places[-1], events, summary)
        told.append(_spoken(entry, f"told by {number}"))
        places.append(places[-1] + events)
    cuts = sorted(draw(st.lists(st.integers(0, len(told)), max_size=3)))
    chunks = [told[start:end] for start, end in zip([0, *cuts], [*cuts, len(told)], strict=True)]
    return chunks + [draw(st.sampled_from(chunks)) for _ in range(draw(st.integers(0, 2)))]


def _spoken(entry: OutboxEntry, word: str) -> OutboxEntry:
    return replace(entry, events=tuple(replace(event, message=word) for event in entry.events))
