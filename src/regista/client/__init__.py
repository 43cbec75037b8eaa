"""The client library: an orchestrator over HTTP, as typed calls. `Client` awaits, `SyncClient` blocks."""

from ..schemas.jobs import JobObject, Progress
from .client import Client
from .sync import SyncClient

__all__ = ["Client", "JobObject", "Progress", "SyncClient"]
