"""What the handlers need, handed over in one piece, and the typed keys under which an app keeps it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from ..clock import Clock
from ..config import Config
from ..dispatch.dispatcher import Dispatcher
from ..engines.native.engine import NativeEngine
from ..engines.native.library import Library
from ..engines.native.workers import WorkerService
from ..history.base import HistoryStorage
from ..model import ClientConfig
from ..storage.base import StorageBackend


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
    #: SHA-256 of a client's token → the client.
    clients: Mapping[str, ClientConfig]
    #: The token that every worker may use.
    worker_token: str
    #: Started, and neither stopping nor failed.
    is_ready: Callable[[], bool]


STAGE = web.AppKey("stage", Stage)
#: Who asks, once `client_auth` has let the request in.
CLIENT = web.RequestKey("client", ClientConfig)
