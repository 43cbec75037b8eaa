"""Random jobs and random searches: what all histories must answer alike."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from regista.model import JobStatus, JobSummary, OutboxEntry
from regista.model.attributes import AttributeType, declared_types
from regista.testing.conformance.history import make_entry

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ATTRIBUTES = declared_types(
    {
        "Asset": "Keyword",
        "Name": "Text",
        "Size": "Int",
        "Ratio": "Double",
        "Hd": "Bool",
        "Due": "Datetime",
        "Tags": "KeywordList",
    }
)
#: Few values, so that they meet; some that mean something to SQL, JSON or LIKE.
WORDS = [
    "a",
    "ab",
    "b",
    "",
    "é",
    "𝄞",
    "%",
    "_",
    "a'b",
    'a"b',
    "\\",
    "$.a",
    "null",
    "A",
    "1",
    "it's; DROP TABLE jobs",
]
TEXTS = ["Summer Holiday", "holiday_2026-beach.mp4", "ÉTÉ à la plage", "beach", "", "a b c"]
NUMBERS: list[Any] = [0, 1, -1, 2**53 + 1, 2**53, 2**63 - 1, -(2**63), 0.1, 0.5, -0.5, 1.0, 1e300, 1e-7, 3.3]
MOMENTS = [START + timedelta(microseconds=us) for us in (0, 1, 999_999, 86_400_000_000)]

_VALUES: dict[AttributeType, st.SearchStrategy[Any]] = {
    AttributeType.KEYWORD: st.sampled_from(WORDS),
    AttributeType.TEXT: st.sampled_from(TEXTS),
    AttributeType.INT: st.sampled_from([n for n in NUMBERS if isinstance(n, int)]),
    AttributeType.DOUBLE: st.sampled_from(NUMBERS),
    AttributeType.BOOL: st.booleans(),
    AttributeType.DATETIME: st.sampled_from(MOMENTS),
    AttributeType.KEYWORD_LIST: st.lists(st.sampled_from(WORDS), max_size=3),
}
#: Of another type than was declared, as they were before somebody declared them.
_ODD = st.sampled_from([None, True, 1, 0.5, "a", ["a"], {"a": 1}])
_attributes = st.fixed_dictionaries(
    {},
    optional={name: st.one_of(_VALUES[kind], _VALUES[kind], _ODD) for name, kind in ATTRIBUTES.items()},
)


@st.composite
def summaries(draw: st.DrawFn, job_id: str) -> JobSummary:
    created = START + timedelta(microseconds=draw(st.integers(0, 3)))
    took = draw(st.none() | st.sampled_from([0, 1, 1_000_000, 90_000_000]))
    return JobSummary(
        job_id=job_id,
        blueprint=draw(st.sampled_from(["transcode", "publish"])),
        version="v1",
        client=draw(st.sampled_from(["acme", "other"])),
        status=draw(st.sampled_from(list(JobStatus))).value,
        state=draw(st.sampled_from(["start", "end"])),
        created_at=created,
        updated_at=created,
        finished_at=None if took is None else created + timedelta(microseconds=took),
        parent_id=draw(st.none() | st.just("job-0")),
        error_code=draw(st.none() | st.sampled_from(["a", "b"])),
        search_attributes=draw(_attributes),
    )


@st.composite
def batches(draw: st.DrawFn) -> list[OutboxEntry]:
    """One summary for each of some jobs, and a later one for a few of them."""
    count = draw(st.integers(0, 8))
    ids = [f"job-{number}" for number in range(count)]
    again = [job_id for job_id in ids if draw(st.booleans())]
    rows = [draw(summaries(job_id)) for job_id in ids + again]
    first = {row.job_id: row for row in reversed(rows)}
    return [
        make_entry(number, row.job_id, number, summary=_like(first[row.job_id], row))
        for number, row in enumerate(rows, 1)
    ]


def _like(first: JobSummary, row: JobSummary) -> JobSummary:
    """The later row, with what never changes about a job as it was."""
    took = None if row.finished_at is None else row.finished_at - row.created_at
    return replace(
        row,
        client=first.client,
        blueprint=first.blueprint,
        created_at=first.created_at,
        parent_id=first.parent_id,
        finished_at=None if took is None else first.created_at + took,
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


_text = st.sampled_from(WORDS).map(_quoted)
_number = st.sampled_from(NUMBERS).map(repr)
_moment = st.sampled_from([*(m.isoformat() for m in MOMENTS), "2026-03-01", "2026-03-02"]).map(_quoted)
_span = st.sampled_from(["'1s'", "'90s'", "0", "'00:01:30'", "'1us'"])
_compare = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<>"])
_equal = st.sampled_from(["=", "!="])
_word_names = st.sampled_from(
    ["Asset", "State", "BlueprintName", "JobId", "ErrorCode", "ParentId", "WorkflowType"]
)
_kinds: list[tuple[st.SearchStrategy[str], st.SearchStrategy[str]]] = [
    (_word_names, st.one_of(_text, st.sampled_from(["'start'", "'transcode'", "'job-1'"]))),
    (st.sampled_from(["Size", "Ratio"]), _number),
    (st.sampled_from(["Due", "StartTime", "CloseTime"]), _moment),
    (st.just("ExecutionDuration"), _span),
]
_statuses = st.sampled_from(["'Running'", "'Completed'", "'Failed'", "'Canceled'", "'TimedOut'", "'pending'"])
_not = st.sampled_from(["", "NOT "])


def _tests() -> st.SearchStrategy[str]:
    found: list[st.SearchStrategy[str]] = []
    for names, values in _kinds:
        found += [
            st.builds("{} {} {}".format, names, _compare, values),
            st.builds("{} {}BETWEEN {} AND {}".format, names, _not, values, values),
            st.builds("{} {}IN ({}, {})".format, names, _not, values, values),
        ]
    found += [
        st.builds("{} {}STARTS_WITH {}".format, _word_names, _not, _text),
        st.builds("Tags {} {}".format, _equal, _text),
        st.builds("Tags {}IN ({}, {})".format, _not, _text, _text),
        st.builds("Name {} {}".format, _equal, st.sampled_from(TEXTS).map(_quoted)),
        st.builds("Hd {} {}".format, _equal, st.sampled_from(["true", "false"])),
        st.builds("ExecutionStatus {} {}".format, _equal, _statuses),
        st.builds("ExecutionStatus {}IN ({}, {})".format, _not, _statuses, _statuses),
        st.builds("{} IS {}NULL".format, st.sampled_from([*ATTRIBUTES, "CloseTime", "ErrorCode"]), _not),
    ]
    return st.one_of(found)


_conditions = st.recursive(
    _tests(),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT {}".format, inner),
        st.builds("{} AND {}".format, inner, inner).map("({})".format),
    ),
    max_leaves=5,
)
_sorted_by = st.sampled_from(
    [
        "Asset",
        "Size",
        "Ratio",
        "Hd",
        "Due",
        "StartTime",
        "CloseTime",
        "ExecutionDuration",
        "State",
        "ErrorCode",
    ]
)
_orders = st.lists(
    st.builds("{}{}".format, _sorted_by, st.sampled_from(["", " ASC", " DESC"])), min_size=1, max_size=2
).map(lambda keys: " ORDER BY " + ", ".join(keys))

queries = st.builds("{}{}".format, st.one_of(st.just(""), _conditions, _conditions), st.just("") | _orders)
groups = st.sampled_from([None, "ExecutionStatus", "BlueprintName", "Asset", "Size", "Ratio", "Hd", "Due"])
