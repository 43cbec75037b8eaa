"""What a search asks for, checked: frozen, and the same for every history that answers it."""

from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...model.attributes import AttributeType


class Kind(StrEnum):
    """How the values of a field compare."""

    #: Whole, by their characters.
    KEYWORD = "keyword"
    #: By the words in it.
    TEXT = "text"
    NUMBER = "number"
    BOOL = "bool"
    #: An instant, kept as its one text.
    DATETIME = "datetime"
    #: Several words, of which one must fit.
    KEYWORD_LIST = "keyword_list"
    #: An instant of the job itself.
    TIMESTAMP = "timestamp"
    #: Whole microseconds.
    DURATION = "duration"


class Field(Struct, frozen=True):
    """Something that jobs can be found or sorted by."""

    name: str
    kind: Kind
    #: The member of a job's summary; empty for a search attribute, and for what is computed.
    column: str = ""
    #: Whether some jobs have none.
    optional: bool = True


def _own(name: str, kind: Kind, column: str, optional: bool = False) -> tuple[str, Field]:
    return name, Field(name, kind, column, optional)


#: What every job has by itself.
SYSTEM = dict(
    [
        _own("BlueprintName", Kind.KEYWORD, "blueprint"),
        _own("JobId", Kind.KEYWORD, "job_id"),
        _own("ExecutionStatus", Kind.KEYWORD, "status"),
        _own("StartTime", Kind.TIMESTAMP, "created_at"),
        _own("CloseTime", Kind.TIMESTAMP, "finished_at", optional=True),
        _own("ExecutionDuration", Kind.DURATION, "", optional=True),
        _own("ClientName", Kind.KEYWORD, "client"),
        _own("State", Kind.KEYWORD, "state"),
        _own("ParentId", Kind.KEYWORD, "parent_id", optional=True),
        _own("ErrorCode", Kind.KEYWORD, "error_code", optional=True),
    ]
)
#: Temporal's names for them.
ALIASES = {"WorkflowType": "BlueprintName", "WorkflowId": "JobId"}
START, JOB_ID, STATUS = SYSTEM["StartTime"], SYSTEM["JobId"], SYSTEM["ExecutionStatus"]
CLIENT, BLUEPRINT, DURATION = SYSTEM["ClientName"], SYSTEM["BlueprintName"], SYSTEM["ExecutionDuration"]

#: How the values of a declared type compare.
KIND_OF = {
    AttributeType.KEYWORD: Kind.KEYWORD,
    AttributeType.TEXT: Kind.TEXT,
    AttributeType.INT: Kind.NUMBER,
    AttributeType.DOUBLE: Kind.NUMBER,
    AttributeType.BOOL: Kind.BOOL,
    AttributeType.DATETIME: Kind.DATETIME,
    AttributeType.KEYWORD_LIST: Kind.KEYWORD_LIST,
}

#: A value as its field keeps it: microseconds for a span, the one text of an instant for a time.
Value = str | int | float | bool | datetime


class Compare(Struct, frozen=True, tag=True):
    """A comparison; unknown where the job has no such value."""

    field: Field
    #: = < <= > or >=
    operator: str
    value: Value


class In(Struct, frozen=True, tag=True):
    """One of these values."""

    field: Field
    values: tuple[Value, ...]


class StartsWith(Struct, frozen=True, tag=True):
    """A word that begins like this."""

    field: Field
    prefix: str


class IsNull(Struct, frozen=True, tag=True):
    """The job has no such value. Never unknown."""

    field: Field


class Not(Struct, frozen=True, tag=True):
    """The opposite; of unknown it is unknown."""

    of: "Node"


class And(Struct, frozen=True, tag=True):
    """Every one of them; of none, everything."""

    of: tuple["Node", ...]


class Or(Struct, frozen=True, tag=True):
    """At least one of them."""

    of: tuple["Node", ...]


Node = Compare | In | StartsWith | IsNull | Not | And | Or


class Key(Struct, frozen=True):
    """A field to sort by. Jobs without a value come last, whatever the direction."""

    field: Field
    descending: bool = False


#: The values of the sort keys of one job: a place in a list.
Place = tuple[Any, ...]


class Query(Struct, frozen=True):
    """Which jobs, and in which order. The order is total: its last key is the id."""

    where: Node = And(())
    order: tuple[Key, ...] = (Key(START, True), Key(JOB_ID, True))

    @property
    def by_start(self) -> bool:
        """It goes along the time of creation, one way or the other: what indexes are made for."""
        fields, ways = [key.field for key in self.order], {key.descending for key in self.order}
        return fields == [START, JOB_ID] and len(ways) == 1

    @property
    def fingerprint(self) -> bytes:
        """Tells it from every other: the place of one list means nothing in another."""
        return sha256(msgspec.msgpack.encode(self)).digest()[:8]

    def restricted(self, **columns: str | None) -> "Query":
        """The same, of the jobs only whose summaries have these values."""
        fields = {field.column: field for field in SYSTEM.values()}
        further = tuple(
            Compare(fields[name], "=", value) for name, value in columns.items() if value is not None
        )
        return replace(self, where=And((*further, *conjuncts(self.where)))) if further else self


def conjuncts(node: Node) -> tuple[Node, ...]:
    """The parts that all must hold."""
    if isinstance(node, And):
        return tuple(part for each in node.of for part in conjuncts(each))
    return (node,)
