"""The contract of payload stores: files by path, streamed, and nothing else.

| prefix            | what lies there                                        | how long                           |
|-------------------|--------------------------------------------------------|------------------------------------|
| `jobs/{job_id}/`  | the files of a job, by the names that people gave them | until the job ends (`S3_AUTO_CLEANUP`) |
| `records/{job_id}/` | large values of its record, by their checksums       | as long as the job's record        |

Rules that hold for every method:

- A file is there whole or not at all; a second write under a path replaces the first.
- Errors of the library are translated: FileMissing, BadFileName, PayloadUnavailable.
- Memory stays bounded, however large the file is: content travels in pieces.
"""

import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct, ValidationError, convert

from ..errors import BadFileName, FileMissing
from ..model import Change, CommitOutcome, Job, JobMessage, Task

#: Where the files of jobs lie, and the large values of their records.
JOBS = "jobs"
RECORDS = "records"

#: Bytes of a piece that travels.
CHUNK = 1024 * 1024
#: S3 takes keys of 1024 bytes; the prefixes need some of them.
MAX_NAME_BYTES = 800
#: Disks take names of 255 bytes, and a file that is being written has a few more.
MAX_PART_BYTES = 240

Method = Literal["GET", "PUT"]


class FileInfo(Struct, frozen=True, gc=False):
    """A file, as a list shows it."""

    #: Below the job's own place: what it was written as.
    name: str
    size: int
    modified: datetime
    #: Changes with the content, where the store says so.
    etag: str | None = None


class PayloadStore(Protocol):
    """Where payloads lie. Paths are relative to the store's own root."""

    #: It can sign URLs that lead to it directly; otherwise the orchestrator serves its own.
    signs: bool

    async def start(self) -> None:
        """Make sure that it can be used; PayloadUnavailable says why it cannot."""
        ...

    def with_own_limits(self, concurrency: int) -> "PayloadStore":
        """The same store, for somebody who has so many turns of his own, and takes none from others."""
        ...

    async def put(self, path: str, content: bytes | Path | AsyncIterable[bytes]) -> None:
        """Write a file. A content that fails half-way leaves what was there before."""
        ...

    async def get(self, path: str) -> bytes:
        """The whole file at once, for small ones; FileMissing."""
        ...

    def stream(self, path: str) -> AsyncIterator[bytes]:
        """The file in pieces; FileMissing with the first."""
        ...

    async def find(self, path: str) -> FileInfo | None:
        """What is known of a file; its name is `path`."""
        ...

    def files(self, prefix: str) -> AsyncIterator[FileInfo]:
        """The files below a prefix (`jobs/j1`), in no particular order; names are whole paths."""
        ...

    async def folders(self, prefix: str) -> list[str]:
        """The last parts of the folders right below a prefix: for `jobs`, the jobs that have files."""
        ...

    async def delete(self, paths: Iterable[str]) -> None:
        """Remove these files. What is not there is fine."""
        ...

    async def clear(self, prefix: str) -> int:
        """Remove everything below a prefix, also what was never written to its end; returns how many files."""
        ...

    async def sign(self, path: str, method: Method, expires_s: float) -> str:
        """A URL that lets whoever has it read or write this one file for a while. Only where it `signs`."""
        ...

    def uri(self, path: str) -> str:
        """The name of the file for other programs, like s3://bucket/jobs/j1/a.txt."""
        ...

    def path_of(self, uri: str) -> str | None:
        """The path that a URI of this store names; None when it is another store's."""
        ...


def check_name(name: object) -> str:
    """The name of a file, if it stays where it belongs and every store can keep it."""
    if not isinstance(name, str) or not name:
        raise BadFileName(name, "expected a non-empty str")
    problem = _problem(name)
    if problem:
        raise BadFileName(name if len(name) < 200 else name[:200] + "…", problem)
    return name


def _problem(name: str) -> str:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it has characters that cannot be written down"
    if size > MAX_NAME_BYTES:
        return f"{size} bytes are more than {MAX_NAME_BYTES}"
    if any(each in "\\#" or each < " " or "\x7f" <= each <= "\x9f" for each in name):
        return "backslashes, # and control characters are not allowed"
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "a part of it is empty, . or .."
    if any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        return f"a part of it is longer than {MAX_PART_BYTES} bytes"
    return ""


def job_prefix(job_id: str) -> str:
    """Where the files of a job lie."""
    return f"{JOBS}/{_one_part(job_id)}"


def record_prefix(job_id: str) -> str:
    """Where the large values of a job's record lie."""
    return f"{RECORDS}/{_one_part(job_id)}"


def _one_part(job_id: str) -> str:
    """An id that names one folder and no other place."""
    if "/" in job_id:
        raise BadFileName(job_id, "the id of a job has no /")
    return check_name(job_id)


# -- whose it is -----------------------------------------------------------------------------------

#: Says whose files these are. Nobody removes what he does not know in a place that is another's, and two who read
#: the same words there mean the same store.
OWNER = "regista-owner"


async def owner_of(store: PayloadStore) -> str:
    """Who uses this store; empty: nobody has, so far."""
    try:
        return (await store.get(OWNER)).decode(errors="replace")
    except FileMissing:
        return ""


async def claim_owner(store: PayloadStore, cluster: str) -> str:
    """Who owns this store; one without an owner becomes the cluster's now."""
    owner = await owner_of(store)
    if not owner:
        await store.put(OWNER, cluster.encode())
    return owner or cluster


def difference(mine: str, my_owner: str, theirs: str, their_owner: str) -> str:
    """Why a worker's store cannot be the orchestrator's, and what to do; empty when it is the same."""
    if my_owner == their_owner:
        return ""
    found = f"is that of cluster {my_owner}" if my_owner else "was never used by any orchestrator"
    return (
        f"expected the payload store of the orchestrator ({theirs}), got {mine}, which {found}; name the same "
        "one in REGISTA_PAYLOADS of both: a directory by its absolute path, on a disk that both see"
    )


# -- large values ----------------------------------------------------------------------------------

#: A dict with this key stands for a value that lies elsewhere, in a record as it is stored.
MARK = "$regista:offloaded"
#: What is shown to people and clients in the place of a value that is too large to be shown.
SHOWN = "$offloaded"
#: A checksum as we write it: one part of a path, and no way out of its folder.
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ValueRef(Struct, frozen=True, gc=False):
    """Where a value lies, and what it must be."""

    path: str
    sha256: str
    size: int


class FetchFailure(Struct, frozen=True, gc=False):
    """Why a value of a record could not be had."""

    code: str
    message: str
    permanent: bool


class UnfetchedValue(Struct, frozen=True):
    """Stands under MARK in a value that was not fetched, from when it is read until it is stored again.

    Nobody can send one: whatever comes from outside is made of dicts, lists and scalars, so a dict under MARK
    in a value is somebody's own.
    """

    #: What stands under MARK in the store.
    mark: dict[str, Any]
    #: None: nobody has tried.
    why: FetchFailure | None = None


def broken(*values: object) -> FetchFailure | None:
    """Why the first of these values that could not be had could not be had; None: all are themselves."""
    for value in values:
        if isinstance(value, dict) and MARK in value:
            kept = value[MARK]
            if isinstance(kept, UnfetchedValue) and kept.why is not None:
                return kept.why
    return None


def read_ref(told: Any) -> ValueRef:
    """A reference as it stands in a record; ValidationError."""
    return convert(told, ValueRef)


def refs_of(value: Any) -> list[ValueRef]:
    """The references that stand in a stored value; none where only one of them is not like ours."""
    mark = value.get(MARK) if isinstance(value, dict) else None
    if not isinstance(mark, dict):
        return []
    try:
        return [read_ref(each) for each in ([mark["whole"]] if "whole" in mark else mark["keys"].values())]
    except (KeyError, AttributeError, ValidationError):
        return []


def is_own(owner: str, value: Any) -> bool:
    """A stored value has references, and every one leads to the job's own place, as we would have written it."""
    refs = refs_of(value)
    if not refs:
        return False
    prefix = record_prefix(owner)
    return all(leads_home(prefix, ref) for ref in refs)


def leads_home(prefix: str, ref: ValueRef) -> bool:
    """The reference names a value below a job's own prefix by its checksum, and nothing else."""
    return _SHA256.fullmatch(ref.sha256) is not None and ref.path == f"{prefix}/{ref.sha256}"


class PayloadOffloader(Protocol):
    """Keeps large values of records in the payload store."""

    async def pack(self, changes: Sequence[Change]) -> Sequence[Change]:
        """The changes with large values stored elsewhere."""
        ...

    def committed(self, changes: Sequence[Change], outcomes: Sequence[CommitOutcome]) -> None:
        """These packed changes were committed or refused."""
        ...

    async def whole_job(self, job: Job) -> Job:
        """The job with all its values."""
        ...

    async def whole_task(self, task: Task) -> Task:
        """The task with all its values. A value that cannot be read stays a `FetchFailure` reference."""
        ...

    async def held_task(self, task: Task) -> Task:
        """A task that a worker holds: with its params where it may have to be sent again."""
        ...

    async def whole_message(self, message: JobMessage) -> JobMessage:
        """The message with all its values."""
        ...

    async def shown(self, job: Job) -> Job:
        """The job as clients see it: very large values only by size and checksum."""
        ...
