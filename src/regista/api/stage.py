"""What the handlers need, handed over in one piece, and the typed keys under which an app keeps it."""

from collections.abc import Callable

from aiohttp import web
from msgspec import Struct

from ..blueprint.registry import BlueprintRegistry
from ..clock import Clock
from ..config import Config
from ..dispatch.dispatcher import Dispatcher
from ..engines.live_events import LiveEventFeed
from ..engines.native.engine import NativeEngine
from ..history.base import HistoryStorage
from ..model import ClientConfig
from ..observe.telemetry import Telemetry
from ..services import Services
from ..services.files import JobPayloads
from ..storage.base import StorageBackend
from ..workers.service import WorkerService
from .doors import Doors


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
    filing: JobPayloads
    history: HistoryStorage
    feed: LiveEventFeed
    doors: Doors
    services: Services
    #: Started, and neither stopping nor failed.
    is_ready: Callable[[], bool]
    #: What is counted, and how the orchestrator is.
    telemetry: Telemetry | None = None


STAGE = web.AppKey("stage", Stage)
#: Who asks, once they were let in.
CLIENT = web.RequestKey("client", ClientConfig)
