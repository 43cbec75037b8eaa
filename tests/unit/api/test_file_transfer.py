"""One client's transfers never take the turns of all."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from regista.api.file_transfer import TransferSlots
from regista.api.problems import Problem
from regista.errors import PayloadUnavailable


async def test_a_client_has_a_share_and_others_have_theirs() -> None:
    transfers = TransferSlots(8, timeout_s=0.05)
    async with AsyncExitStack() as held:
        for _ in range(transfers.each):
            await held.enter_async_context(transfers.slot("bob"))

        with pytest.raises(Problem) as refused:
            await held.enter_async_context(transfers.slot("bob"))
        await held.enter_async_context(transfers.slot("ada"))

    assert (refused.value.status, refused.value.code) == (429, "too_many_transfers")


async def test_when_all_turns_are_taken_a_client_is_told_to_come_again() -> None:
    transfers = TransferSlots(4, timeout_s=0.05)
    async with AsyncExitStack() as held:
        for name in "abcd":
            await held.enter_async_context(transfers.slot(name))

        with pytest.raises(PayloadUnavailable):
            await held.enter_async_context(transfers.slot("ada"))


async def test_turns_are_given_back_whatever_happens_and_nobody_is_remembered() -> None:
    transfers = TransferSlots(4, timeout_s=5)

    async def one(number: int) -> None:
        async with transfers.slot("bob"):
            await asyncio.sleep(0.001)
            if number % 2:
                raise ValueError("x")

    tasks = [asyncio.create_task(one(number)) for number in range(20)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[-1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert transfers._of == {}
    async with AsyncExitStack() as held, asyncio.timeout(1):
        for name in "abcd":
            await held.enter_async_context(transfers.slot(name))
