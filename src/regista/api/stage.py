"""What the handlers need, handed over in one piece, and the typed keys under which an app keeps it."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from ..clock import Clock
from ..config import Config
from ..dispatch.dispatcher import Dispatcher
from ..engines.native.engine import NativeEngine
from ..engines.native.feed import Feed
from ..engines.native.library import Library
from ..engines.native.workers import WorkerService
from ..history.base import HistoryStorage
from ..model import ClientConfig
from ..storage.base import StorageBackend
from ..wire.jobs import JobObject
from .doors import Doors


@dataclass(frozen=True, slots=True)
class Stage:
    """The services behind the API."""

    config: Config
    clock: Clock
    engine: NativeEngine
    workers: WorkerService
    dispatcher: Dispatcher
    library: Library
    storage: StorageBackend
    history: HistoryStorage
    feed: Feed
    doors: Doors
    #: Started, and neither stopping nor failed.
    is_ready: Callable[[], bool]
    #: Ended jobs that were lately shown: they never change, and their story may be a read of history.
    shown: OrderedDict[str, JobObject] = field(default_factory=OrderedDict)


STAGE = web.AppKey("stage", Stage)
#: Who asks, once `client_auth` has let the request in.
CLIENT = web.RequestKey("client", ClientConfig)
