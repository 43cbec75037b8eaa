"""What the handlers use, in one record, and the keys under which applications and requests keep things."""

from typing import TYPE_CHECKING

from aiohttp import web
from msgspec import Struct

from ..blueprint.registry import BlueprintRegistry
from ..clock import Clock
from ..config import Config
from ..dispatch.dispatcher import Dispatcher
from ..engines.live_events import LiveEventFeed
from ..engines.native.engine import NativeEngine
from ..log_throttle import LogThrottle
from ..model import ClientConfig
from ..observe.telemetry import Telemetry
from ..services import Services
from ..services.files import JobPayloads
from ..storage.base import StorageBackend
from ..workers.service import WorkerService
from .authenticator import Authenticator

if TYPE_CHECKING:
    from ..services.tokens import TokenService
    from ..workers.polling.service import PollingService
    from .file_transfer import TransferSlots
    from .openapi import OpenApiDocument
    from .rate_limits import RateLimiter
    from .worker_protocol.auth import WorkerLogins
    from .worker_protocol.streams import WorkerStreams


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
    feed: LiveEventFeed
    authenticator: Authenticator
    services: Services
    #: What is counted, and how the orchestrator is.
    telemetry: Telemetry | None = None


class ApiContext(Stage, frozen=True, kw_only=True):
    """The same with the parts of the HTTP edge itself."""

    limiter: "RateLimiter"
    #: For warnings about an address: one an hour.
    log_throttle: LogThrottle
    logins: "WorkerLogins"
    desk: "PollingService"
    streams: "WorkerStreams"
    tokens: "TokenService"
    #: Slots of files that go out and come in. Two kinds: a client that copies one to another must not wait for itself.
    downloads: "TransferSlots"
    uploads: "TransferSlots"
    document: "OpenApiDocument"


STAGE = web.AppKey("stage", ApiContext)
#: Who asks, once they were let in.
CLIENT = web.RequestKey("client", ClientConfig)
