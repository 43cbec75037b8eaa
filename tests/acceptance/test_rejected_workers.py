"""Rejected workers are logged, at most once a minute for each address."""

import asyncio

import pytest

from tests.acceptance.serving import House, serving
from tests.support import one_task

POLL = "/_worker/workers/w1/tasks/next"


async def knock(house: House, token: str) -> int:
    headers = {"X-Worker-Token": token, "X-Worker-ID": "w1"}
    return (await house.get(POLL, token=None, headers=headers)).status


def test_a_worker_with_a_wrong_token_is_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(one_task()) as house:
            assert [await knock(house, "wrong-one") for _ in range(3)] == [401] * 3

    asyncio.run(main())
    (line,) = [record for record in caplog.records if vars(record).get("action") == "worker_turned_away"]
    said = line.getMessage()
    assert line.levelname == "WARNING"
    assert "w1" in said
    assert "wrong-one" not in said


def test_clients_are_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(one_task()) as house:
            assert (await house.get("/api/v1/jobs", token="wrong")).status == 401

    asyncio.run(main())
    assert [record for record in caplog.records if vars(record).get("action") == "worker_turned_away"] == []
