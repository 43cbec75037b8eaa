"""Months, and how near the end of a quota a client is."""

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista import ActionFactory, ClientConfig, Config, JobContext, OrchestratorEngine
from regista.engines.base import MonthlyQuota, Submission
from regista.engines.quotas import monthly_quota
from regista.errors import QuotaExceeded
from regista.model import Job, Quota
from tests.support import script

ADA = ClientConfig(name="ada", monthly_attempts=3)
MADRID = ZoneInfo("Europe/Madrid")


@pytest.mark.parametrize(
    ("now", "zone", "month", "resets_at"),
    [
        ("2026-03-31T21:59:59+00:00", "Europe/Madrid", "2026-03", "2026-04-01T00:00:00+02:00"),
        ("2026-03-31T22:00:00+00:00", "Europe/Madrid", "2026-04", "2026-05-01T00:00:00+02:00"),
        ("2026-12-31T23:30:00+00:00", "UTC", "2026-12", "2027-01-01T00:00:00+00:00"),
        ("2026-12-31T12:00:00+00:00", "Pacific/Kiritimati", "2027-01", "2027-02-01T00:00:00+14:00"),
        ("2027-01-01T03:00:00+00:00", "America/New_York", "2026-12", "2027-01-01T00:00:00-05:00"),
    ],
)
def test_the_month_is_that_of_the_zone(now: str, zone: str, month: str, resets_at: str) -> None:
    mine = monthly_quota(ADA, datetime.fromisoformat(now), ZoneInfo(zone))
    assert mine is not None
    assert mine.quota.counter == f"jobs:{month}:ada"
    assert mine.quota.limit == 3
    assert mine.resets_at.isoformat() == resets_at


def test_a_client_without_a_number_has_no_quota_and_one_with_none_left_has() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert monthly_quota(ClientConfig(name="all"), now, MADRID) is None
    nothing = monthly_quota(ClientConfig(name="none", monthly_attempts=0), now, MADRID)
    assert nothing is not None
    assert nothing.quota.limit == 0


@given(
    now=st.integers(0, 60 * 365 * 86_400).map(
        lambda s: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=s)
    ),
    zone=st.sampled_from(sorted(available_timezones())).map(ZoneInfo),
)
def test_a_month_begins_anew_ahead_of_us_and_a_count_outlives_it(now: datetime, zone: ZoneInfo) -> None:
    mine = monthly_quota(ADA, now, zone)
    assert mine is not None
    left = mine.resets_at.astimezone(UTC) - now
    assert timedelta() < left <= timedelta(days=31, hours=2)
    assert mine.quota.ttl_s > left.total_seconds()
    after = monthly_quota(ADA, mine.resets_at.astimezone(UTC) + timedelta(hours=2), zone)
    before = monthly_quota(ADA, mine.resets_at.astimezone(UTC) - timedelta(hours=2), zone)
    assert after is not None
    assert before is not None
    assert after.quota.counter > mine.quota.counter >= before.quota.counter


async def test_no_handler_runs_for_a_job_that_is_refused() -> None:
    runs: list[str] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        runs.append(context.job_id)
        actions.transition_to("done")

    config = Config(instance_id="one")
    async with OrchestratorEngine("memory", config) as director:
        director.register_blueprint(script(start, "done"))
        allowance = MonthlyQuota(Quota("ada", 5, 60.0), datetime(2030, 1, 1, tzinfo=UTC))
        wishes = [Submission(blueprint="script", client="ada") for _ in range(300)]
        answers = await director.engine.submit(wishes, allowance)
        assert [isinstance(answer, Job) for answer in answers] == [True] * 5 + [False] * 295
        calls = (director.engine.submit([wish], allowance) for wish in wishes[:50])
        refused = await asyncio.gather(*calls)
        assert all(isinstance(answer, QuotaExceeded) for (answer,) in refused)
        for answer in answers[:5]:
            assert isinstance(answer, Job)
            await director.wait(answer.id, 5)
        assert len(runs) == 5


async def test_no_handler_runs_for_a_job_that_is_refused_though_many_are_submitted_at_once() -> None:
    runs: list[str] = []
    limit = 150

    def start(context: JobContext, actions: ActionFactory) -> None:
        runs.append(context.job_id)
        actions.transition_to("done")

    async with OrchestratorEngine("memory", Config(instance_id="one")) as director:
        director.register_blueprint(script(start, "done"))
        quota = MonthlyQuota(Quota("ada", limit, 60.0), datetime(2030, 1, 1, tzinfo=UTC))
        submission = Submission(blueprint="script", client="ada")
        answers = await asyncio.gather(*(director.engine.submit([submission], quota) for _ in range(400)))
        created = [answer for (answer,) in answers if isinstance(answer, Job)]
        assert len(created) == limit
        for job in created:
            await director.wait(job.id, 5)
        assert len(runs) == limit


@pytest.mark.parametrize("suspends", [False, True])
async def test_a_job_with_a_quota_is_stored_before_its_first_handler_and_counted_once(suspends: bool) -> None:
    async def start(context: JobContext, actions: ActionFactory) -> None:
        if suspends:
            await asyncio.sleep(0.05)
        actions.transition_to("done")

    async with OrchestratorEngine("memory", Config(instance_id="one")) as director:
        director.register_blueprint(script(start, "done"))
        quota = MonthlyQuota(Quota("ada", 1000, 60.0), datetime(2030, 1, 1, tzinfo=UTC))
        (job,) = await director.engine.submit([Submission(blueprint="script", client="ada")], quota)
        assert isinstance(job, Job)
        assert (job.status, job.revision) == ("pending", 1)
        ended = await director.wait(job.id, 5)
        assert (ended.status, ended.revision) == ("finished", 2)
        assert await director.storage.quota_used("ada") == 1
