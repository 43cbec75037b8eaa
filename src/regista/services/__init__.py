"""What callers may do, independent of how they ask: HTTP, gRPC, the dashboard or the embedding program.

Every method takes a `Caller` and checks what it may do. Transports authenticate, parse and format.
"""

from msgspec import Struct

from .audit import AuditService as AuditService
from .caller import Caller as Caller
from .caller import Role as Role
from .queues import QueueService as QueueService
from .schedules import ScheduleService as ScheduleService
from .system import SystemService as SystemService
from .tokens import TokenService as TokenService
from .webhooks import WebhookService as WebhookService
from .workers import WorkerAdminService as WorkerAdminService


class Services(Struct, frozen=True, kw_only=True):
    """The services of one orchestrator."""

    audit: AuditService
    schedules: ScheduleService
    webhooks: WebhookService
    workers: WorkerAdminService
    queues: QueueService
    system: SystemService
