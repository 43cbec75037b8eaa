import json
import logging
from datetime import UTC

from regista import trace_context
from regista.model import Task
from regista.observe.log_context import ContextFields
from regista.observe.logging import JsonLines, PrettyLines
from regista.sdk.running_task import AttemptScope


def line(ids: ContextFields, **fields: str) -> dict[str, str]:
    record = logging.makeLogRecord({"msg": "words", **fields})
    assert ids.filter(record)
    told: dict[str, str] = json.loads(JsonLines(UTC).format(record))
    return told


def test_every_line_names_who_wrote_it() -> None:
    ids = ContextFields()
    ids.always(instance="one", worker_id="")

    told = line(ids)

    assert told["instance"] == "one"
    assert "worker_id" not in told


def test_a_line_that_is_written_while_a_task_runs_carries_its_ids_and_the_trace() -> None:
    context = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    about = trace_context.CURRENT_SUBJECT.set(
        AttemptScope(Task(id="j_1_0", job_id="j", type="work", tracing_context=context), worker_id="")
    )

    told = line(ContextFields())
    own = line(ContextFields(), job_id="mine")

    trace_context.CURRENT_SUBJECT.reset(about)
    assert (told["job_id"], told["task_id"], told["trace_id"]) == ("j", "j_1_0", "a" * 32)
    assert told["attempt_id"] == "j_1_0-1"
    assert "worker_id" not in told
    assert own["job_id"] == "mine"
    assert "job_id" not in line(ContextFields())


def test_a_person_at_a_terminal_is_spared_what_he_knows() -> None:
    record = logging.makeLogRecord({"msg": "words", "instance": "one", "trace_id": "a", "job_id": "j"})

    assert PrettyLines(UTC, colour=False).format(record).endswith("words job_id=j")
    ids = {"msg": "words", "task_id": "j_1_0", "attempt_id": "j_1_0-2"}
    assert (
        PrettyLines(UTC, colour=False).format(logging.makeLogRecord(ids)).endswith("words attempt_id=j_1_0-2")
    )
