"""The stock workers, unmodified, with certificates and short-lived tokens, where they know of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from regista import JobStatus
from regista.workers.credentials import SHELF, WorkerTokenStore
from regista.workers.one_time_passwords import OneTimePasswords
from tests.acceptance.house import TOKEN, house, until
from tests.acceptance.stock import stock, stock_worker
from tests.certificates import Authority

__all__ = ["stock"]  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # the first one installs the packages


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stock"), "stock-old", "stock-new")


def own(authority: Authority, name: str, token: str) -> dict[str, str]:
    """The settings of a worker with a certificate."""
    return {
        "TLS_CA_PATH": authority.ca,
        "TLS_CERT_PATH": authority.cert(name),
        "TLS_KEY_PATH": authority.key(name),
        "WORKER_TOKEN": token,
    }


def test_both_come_with_their_certificates_and_go_on_with_short_lived_tokens(
    stock: Path, authority: Authority
) -> None:
    served: dict[str, Any] = {**authority.served, "tls_ca_path": authority.ca}

    async def scenario() -> None:
        async with (
            house(**served) as here,
            # The newer one signs everything: first with the configured token, then with the short-lived one.
            stock_worker(stock, "new", here.site.url, "stock-new", **own(authority, "stock-new", TOKEN)),
            stock_worker(
                stock, "old", here.site.url, "stock-old", **own(authority, "stock-old", "not-known")
            ),
        ):
            for name in ("stock-new", "stock-old"):
                await here.joined(name)

            async def rotated() -> bool:
                logins = await here.director.storage.records(SHELF)
                return {login.key.partition(".")[0] for login in logins} == {"stock-new", "stock-old"}

            await until(rotated, 15)  # they ask for one after five seconds
            # As many as both have slots together.
            jobs = await asyncio.gather(*(here.run("slow", seconds=0.5) for _ in range(8)))
            assert {job.status for job in jobs} == {JobStatus.FINISHED}
            events = [event for job in jobs for event in await here.director.events(job.id)]
            assert {event.worker_id for event in events if event.worker_id} == {"stock-new", "stock-old"}

    asyncio.run(scenario())


async def test_the_newer_one_comes_with_a_password_and_gets_a_login_with_its_registration(
    stock: Path,
) -> None:
    async with house(worker_token="nobody-knows-this") as here:
        storage, clock = here.director.storage, here.director.clock
        made = await OneTimePasswords(storage, WorkerTokenStore(storage, clock)).make("stock-1")
        async with stock_worker(stock, "new", here.site.url, WORKER_TOKEN=made.text):
            assert (await here.run("echo", n=1)).status is JobStatus.FINISHED
            assert (await here.run("echo", n=2)).status is JobStatus.FINISHED
