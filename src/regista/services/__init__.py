"""What callers may do, independent of how they ask: HTTP, gRPC, the dashboard or the embedding program.

Every method takes a `Caller` and checks what it may do. Transports authenticate, parse and format.
"""

from msgspec import Struct

from .approvals import ApprovalService as ApprovalService
from .audit import AuditService as AuditService
from .blueprints import BlueprintService as BlueprintService
from .caller import Caller as Caller
from .caller import Role as Role
from .events import EventService as EventService
from .files import FileService as FileService
from .job_details import JobDetailsReader as JobDetailsReader
from .job_history import JobHistoryService as JobHistoryService
from .jobs import JobService as JobService
from .queues import QueueService as QueueService
from .schedules import ScheduleService as ScheduleService
from .search import SearchService as SearchService
from .system import SystemService as SystemService
from .tokens import TokenService as TokenService
from .webhooks import WebhookService as WebhookService
from .workers import WorkerAdminService as WorkerAdminService


class Services(Struct, frozen=True, kw_only=True):
    """The services of one orchestrator."""

    audit: AuditService
    jobs: JobService
    job_details: JobDetailsReader
    job_history: JobHistoryService
    search: SearchService
    events: EventService
    approvals: ApprovalService
    files: FileService
    blueprints: BlueprintService
    schedules: ScheduleService
    webhooks: WebhookService
    workers: WorkerAdminService
    queues: QueueService
    system: SystemService
