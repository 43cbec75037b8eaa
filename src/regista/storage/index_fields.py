"""What a backend stores beside the bytes of a record, so that others need not decode it."""

from ..model import Job, JobSummary


def summary_of(job: Job) -> JobSummary:
    """The row that lists and searches read."""
    return JobSummary(
        job_id=job.id,
        blueprint=job.blueprint,
        version=job.version,
        client=job.client,
        status=job.status,
        state=job.state,
        created_at=job.created_at,
        updated_at=job.updated_at,
        finished_at=job.finished_at,
        parent_id=job.parent_id,
        error_code=job.error.code if job.error else None,
        search_attributes=job.search_attributes,
    )
