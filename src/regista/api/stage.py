"""What the handlers need, handed over in one piece, and the typed keys under which an app keeps it."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import web
from msgspec import Struct, field

from ..blueprint.registry import BlueprintRegistry
from ..clock import Clock
from ..config import Config
from ..dispatch.dispatcher import Dispatcher
from ..engines.live_events import LiveEventFeed
from ..engines.native.engine import NativeEngine
from ..history.base import HistoryStorage
from ..model import ClientConfig, Job
from ..observe.telemetry import Telemetry
from ..payloads.task_files import TaskFiles
from ..schemas.jobs import JobObject
from ..services import Services
from ..storage.base import StorageBackend
from ..workers.service import WorkerService
from .doors import Doors


class Files(Protocol):
    """The files and large values of jobs, as far as the API asks for them; `Filing` is it."""

    @property
    def secret(self) -> bytes:
        """Signs links to files."""
        ...

    @property
    def place(self) -> dict[str, str] | None:
        """Which payload store this is, for workers who must use the same; None where there is none."""
        ...

    def open(self, job_id: str, *, outside: bool = False) -> TaskFiles:
        """The files of a job, with turns of their own for links from `outside`; PayloadsDisabled."""
        ...

    async def whole(self, job: Job) -> Job:
        """A job with every value whole, whatever its size."""
        ...

    async def seen(self, job: Job) -> Job:
        """A job as a stranger may see it, where it comes straight from whoever wrote it."""
        ...

    async def value(self, job_id: str, sha256: str) -> Any:
        """A large value of a job by its checksum; FileMissing."""
        ...


class Stage(Struct, frozen=True):
    """The services behind the API."""

    config: Config
    clock: Clock
    engine: NativeEngine
    workers: WorkerService
    dispatcher: Dispatcher
    library: BlueprintRegistry
    #: At a glance: large values are sizes and checksums in it.
    storage: StorageBackend
    filing: Files
    history: HistoryStorage
    feed: LiveEventFeed
    doors: Doors
    services: Services
    #: Started, and neither stopping nor failed.
    is_ready: Callable[[], bool]
    #: Ended jobs that were lately shown: they never change, and their story may be a read of history.
    shown: OrderedDict[str, JobObject] = field(default_factory=OrderedDict)
    #: What is counted, and how the orchestrator is.
    telemetry: Telemetry | None = None


STAGE = web.AppKey("stage", Stage)
#: Who asks, once they were let in.
CLIENT = web.RequestKey("client", ClientConfig)
