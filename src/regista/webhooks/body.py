"""What a webhook says: a job's end or question, in the words of the documents and of the Standard Webhooks."""

from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..model import AwaitHuman
from ..model.delivery import WebhookDelivery
from ..schemas.job_view import job_view
from ..schemas.jobs import ErrorView, JobObject, WaitingFor

#: Where a person's decision comes in (api/job_actions.py).
APPROVAL_PATH = "/_public/webhooks/approval/{job_id}?token={token}"


class WebhookJob(Struct, frozen=True, kw_only=True):
    """The job as its owner sees it, without what it was given and what it keeps: those are asked for."""

    id: str
    blueprint: str
    version: str
    status: str
    state: str
    waiting_for: WaitingFor | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    search_attributes: dict[str, Any]
    parent_id: str | None


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """What a person is asked. A POST of `{"decision": …}` to `url` answers it; no other token is needed."""

    message: str
    decisions: list[str]
    integration: str | None
    token: str
    url: str


class WebhookBody(Struct, frozen=True, kw_only=True):
    """The body of a delivery."""

    #: The same in every try, and in the header `webhook-id`.
    id: str
    #: job.finished, job.failed, job.cancelled, job.quarantined or job.waiting_for_human.
    type: str
    #: The same as the source documents write it: job_finished, …
    event: str
    timestamp: datetime
    #: Counts the changes of the job: what has a higher number happened later.
    sequence: int
    job_id: str
    status: str
    result: Any
    error: ErrorView | None
    data: WebhookJob
    approval: ApprovalRequest | UnsetType = UNSET
    #: Members that were too large to be told; GET /api/v1/jobs/{id} has them.
    omitted: list[str] | UnsetType = UNSET


_encode = msgspec.json.Encoder().encode


def render_body(delivery: WebhookDelivery, token: str, public_url: str = "") -> bytes:
    """The body; the same bytes in every try. `token` lets its receiver answer the question of this very job."""
    job = delivery.job
    asked = job.wait if isinstance(job.wait, AwaitHuman) and delivery.event == "waiting_for_human" else None
    shown = job_view(job)  # its token stands in `approval`, and nowhere else
    return _encode(
        WebhookBody(
            id=delivery.id,
            type=f"job.{delivery.event}",
            event=f"job_{delivery.event}",
            timestamp=delivery.at,
            sequence=job.revision,
            job_id=job.id,
            status=shown.status,
            result=shown.result,
            error=shown.error,
            data=_told(shown),
            approval=UNSET if asked is None else _question(job.id, asked, token, public_url),
            omitted=list(delivery.omitted) or UNSET,
        )
    )


def _told(shown: JobObject) -> WebhookJob:
    return WebhookJob(
        id=shown.id,
        blueprint=shown.blueprint,
        version=shown.version,
        status=shown.status,
        state=shown.state,
        waiting_for=shown.waiting_for,
        created_at=shown.created_at,
        updated_at=shown.updated_at,
        finished_at=shown.finished_at,
        search_attributes=shown.search_attributes,
        parent_id=shown.parent_id,
    )


def _question(job_id: str, asked: AwaitHuman, token: str, public_url: str) -> ApprovalRequest:
    path = APPROVAL_PATH.format(job_id=quote(job_id, safe=""), token=token)
    return ApprovalRequest(
        message=asked.message,
        decisions=sorted(asked.transitions),
        integration=asked.integration,
        token=token,
        url=public_url.rstrip("/") + path,
    )
