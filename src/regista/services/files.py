"""Files and large values of jobs."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from ..clock import Clock
from ..errors import BadFileName, FileMissing, JobAlreadyTerminal, JobNotFound, LinkExpired, LinkInvalid
from ..model import Job
from ..payloads import links
from ..payloads.base import FileInfo, check_name
from ..payloads.task_files import TaskFiles
from ..storage.base import JobStorage
from .caller import Caller


class JobPayloads(Protocol):
    """The files and large values of jobs; `Filing` is it."""

    @property
    def secret(self) -> bytes:
        """Signs links to files."""
        ...

    @property
    def place(self) -> dict[str, str] | None:
        """Which payload store this is, for workers who must use the same; None where there is none."""
        ...

    def open(self, job_id: str, *, outside: bool = False) -> TaskFiles:
        """The files of a job, with slots of their own for links from `outside`; PayloadsDisabled."""
        ...

    async def whole(self, job: Job) -> Job:
        """The job with every value whole, whatever its size."""
        ...

    async def seen(self, job: Job) -> Job:
        """The job with its large values replaced by their sizes and checksums."""
        ...

    async def value(self, job_id: str, sha256: str) -> Any:
        """A large value of a job by its checksum; FileMissing."""
        ...


class FilePage(NamedTuple):
    """Some files of a job."""

    files: list[FileInfo]
    #: The name after which the next page begins; None at the end.
    end: str | None


class SignedLink(Struct, frozen=True):
    """A link that reads or writes one file for some time. A `url` without a host leads to this orchestrator."""

    name: str
    method: str
    url: str
    expires_s: float
    expires_at: datetime
    size: int | None = None


class LinkedFile(NamedTuple):
    """The file that a signed link leads to."""

    files: TaskFiles
    name: str
    #: The client of its job; the job's id if the job is gone.
    owner: str


class JobFinder(Protocol):
    """Finds the jobs that a caller may see; `JobService` is it."""

    async def get(self, caller: Caller, job_id: str) -> Job:
        """The job, or JobNotFound."""
        ...


class FileService:
    """Lists the files of jobs and makes links to them. The files of a client's jobs, or of all for an operator."""

    def __init__(self, jobs: JobFinder, payloads: JobPayloads, storage: JobStorage, clock: Clock) -> None:
        self._jobs = jobs
        self._payloads = payloads
        self._storage = storage
        self._clock = clock

    async def list_page(self, caller: Caller, job_id: str, after: str = "", limit: int = 1000) -> FilePage:
        """The files of the job whose names come after `after`, by name; JobNotFound, PayloadsDisabled."""
        files = await self._files(caller, job_id)
        found = [each for each in await files.list() if each.name > after]
        return FilePage(found[:limit], found[limit - 1].name if len(found) > limit else None)

    async def upload_link(self, caller: Caller, job_id: str, name: str, expires_s: float) -> SignedLink:
        """A link to write a file; BadFileName, JobNotFound, JobAlreadyTerminal."""
        check_name(name)
        job = await self._jobs.get(caller, job_id)
        files = self._payloads.open(job_id)
        if job.status.terminal:
            raise JobAlreadyTerminal(job_id, job.status)
        url = await files.generate_presigned_url(name, "PUT", expires_s)
        return self._link(name, "PUT", url, expires_s)

    async def download_link(self, caller: Caller, job_id: str, name: str, expires_s: float) -> SignedLink:
        """A link to read a file; JobNotFound, FileMissing."""
        files = await self._files(caller, job_id)
        try:
            found = await files.info(name)
        except BadFileName:
            raise FileMissing(name) from None
        url = await files.generate_presigned_url(found.name, "GET", expires_s)
        return self._link(found.name, "GET", url, expires_s, found.size)

    async def value(self, caller: Caller, job_id: str, sha256: str) -> Any:
        """A large value of the job by its checksum; JobNotFound, FileMissing, IntegrityError."""
        await self._jobs.get(caller, job_id)
        return await self._payloads.value(job_id, sha256)

    # -- signed links that lead here -------------------------------------------------------------

    def check_link(self, job_id: str, name: str, method: str, expires: int, signature: str) -> None:
        """Raise LinkInvalid or LinkExpired unless this orchestrator signed the link and its time is not over.

        The signature is the permission; the holder needs no token.
        """
        if not links.is_valid_link(self._payloads.secret, job_id, name, method, expires, signature):
            raise LinkInvalid
        if self._clock.now().timestamp() > expires:
            raise LinkExpired

    async def linked_download(self, job_id: str, name: str) -> LinkedFile:
        """The file to read, for the holder of a checked link."""
        files = self._payloads.open(job_id, outside=True)
        (job,) = await self._storage.get([job_id])
        return LinkedFile(files, name, job_id if job is None else job.client or job_id)

    async def linked_upload(self, job_id: str, name: str) -> LinkedFile:
        """The file to write, for the holder of a checked link; JobNotFound, JobAlreadyTerminal."""
        files = self._payloads.open(job_id, outside=True)
        (job,) = await self._storage.get([job_id])
        if job is None:
            raise JobNotFound(job_id)
        if job.status.terminal:
            raise JobAlreadyTerminal(job_id, job.status)
        return LinkedFile(files, name, job.client or job_id)

    async def _files(self, caller: Caller, job_id: str) -> TaskFiles:
        await self._jobs.get(caller, job_id)
        return self._payloads.open(job_id)

    def _link(
        self, name: str, method: str, url: str, expires_s: float, size: int | None = None
    ) -> SignedLink:
        return SignedLink(
            name, method, url, expires_s, self._clock.now() + timedelta(seconds=expires_s), size
        )
