"""A page of jobs is right whatever of it is recorded, and whatever happens between two pages."""

from typing import Any

import pytest

from regista import Config, OrchestratorEngine
from regista.api.listing import list_jobs, place_in, token_for
from regista.api.problems import Problem
from regista.api.stage import STAGE, Stage
from regista.history.query import Place, Query, parse_query
from regista.history.reader import find_jobs
from regista.model.attributes import AttributeType
from tests.support import one_task


async def ids(stage: Stage, limit: int = 100, **asked: Any) -> list[list[str]]:
    """The ids, page by page."""
    query = parse_query(asked.pop("query", ""), {}).restricted(**asked)
    pages: list[list[str]] = []
    after: Place | None = None
    while True:
        found = await find_jobs(stage.storage, stage.history, query, after, limit)
        page = await list_jobs(stage, query, after, limit)
        assert [item.id for item in page.items] == [row.job_id for row in found.rows]
        pages.append([item.id for item in page.items])
        after = found.end
        assert (page.next is None) == (after is None)
        if after is None:
            return pages


@pytest.mark.parametrize("recorded", range(6))
@pytest.mark.parametrize("limit", [1, 2, 5, 6])
async def test_every_job_is_listed_once_however_much_of_it_is_recorded(recorded: int, limit: int) -> None:
    director = OrchestratorEngine("memory", Config(instance_id="x", client_token="t", worker_token="w"))
    director.register_blueprint(one_task())
    async with director:
        await director.recorder.stop()  # history is as far as we say
        made = []
        for n in range(5):
            key = None if n % 2 else f"key-{n}"
            made.append((await director.submit("script", client="ada", idempotency_key=key)).id)
            if n + 1 == recorded:
                await director.recorder.drain()
        await director.cancel(made[1])
        stage = director.app[STAGE]
        pages = await ids(stage, limit)
        assert [one for page in pages for one in page] == made[::-1]
        waiting = await ids(stage, limit, status="waiting_for_worker")
        assert [one for page in waiting for one in page] == [made[4], made[3], made[2], made[0]]
        assert await ids(stage, limit, status="cancelled") == [[made[1]]]
        assert await ids(stage, limit, client="bob") == [[]]
        oldest = await ids(stage, limit, query="ORDER BY StartTime")
        assert [one for page in oldest for one in page] == made
        ended_first = await ids(stage, limit, query="ORDER BY CloseTime DESC, StartTime")
        assert [one for page in ended_first for one in page] == [made[1], made[0], *made[2:]]
        running = await ids(stage, limit, query="ExecutionStatus = 'Running' ORDER BY StartTime ASC")
        assert [one for page in running for one in page] == [made[0], *made[2:]]


async def test_what_the_store_has_let_go_of_is_told_from_history() -> None:
    director = OrchestratorEngine("memory", Config(instance_id="x", client_token="t", worker_token="w"))
    director.register_blueprint(one_task())
    async with director:
        job = await director.submit("script", {"n": 1}, search_attributes={"Kind": "a"})
        await director.cancel(job.id, "enough")
        await director.recorder.drain()
        stage = director.app[STAGE]
        director.storage._state._ended.clear()  # type: ignore[attr-defined]
        (item,) = (await list_jobs(stage, Query(), None, limit=9)).items
        assert (item.id, item.status, item.input) == (job.id, "cancelled", {})
        assert item.search_attributes == {"Kind": "a"}
        assert item.error is not None
        assert item.error.code == "cancelled"


class Asked:
    """A request, as far as `place_in` looks at one."""

    def __init__(self, token: str) -> None:
        self.query = {"next": token}


def test_a_token_leads_on_in_its_own_list_only() -> None:
    first = parse_query("State = 'a' ORDER BY CloseTime DESC", {})
    second = parse_query("State = 'b' ORDER BY CloseTime DESC", {})
    place: Place = (None, "job-1")
    token = token_for(first, place)
    assert place_in(Asked(token), first) == place  # type: ignore[arg-type]
    for query in (second, first.restricted(client="ada"), Query()):
        with pytest.raises(Problem, match="of this very search"):
            place_in(Asked(token), query)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[1], ["x", "y"], [1 << 62, "a"], [None, None], [None, 5], [1, "a\0"]])
def test_a_token_that_somebody_made_up_is_refused(values: list[Any]) -> None:
    query = parse_query("ORDER BY CloseTime", {})
    with pytest.raises(Problem, match="expected"):
        place_in(Asked(token_for(query, tuple(values))), query)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Int", (1 << 64) - 1),
        ("Int", 1 << 63),
        ("Int", True),
        ("Double", float("nan")),
        ("Double", float("inf")),
        ("Double", "1"),
        ("Bool", 1),
        ("Datetime", 5),
        ("ExecutionDuration", (1 << 64) - 1),
        ("ExecutionDuration", True),
        ("StartTime", True),
        ("StartTime", (1 << 63) - 1),
        ("StartTime", -(1 << 63)),
    ],
)
def test_a_number_that_no_history_can_compare_with_is_refused(field: str, value: Any) -> None:
    query = parse_query(f"ORDER BY {field}", {kind.value: kind for kind in AttributeType})
    with pytest.raises(Problem, match="expected") as refused:
        place_in(Asked(token_for(query, (value, "job-1"))), query)  # type: ignore[arg-type]
    assert refused.value.status == 400
