"""Working time: queueing is free, work is not."""

from __future__ import annotations

import asyncio

import pytest

from agentfly.context.deadline import working_time


async def test_work_past_the_limit_is_cut() -> None:
    with pytest.raises(TimeoutError):
        async with working_time(0.01, lambda: 0.0):
            await asyncio.Event().wait()


async def test_a_block_without_limit_is_left_alone() -> None:
    async with working_time(None, lambda: 0.0):
        await asyncio.sleep(0)


async def test_time_in_a_queue_does_not_count() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    queueing = True

    def waited() -> float:
        return loop.time() - started if queueing else queued

    async with working_time(0.01, waited):
        await asyncio.sleep(0.05)  # five times the limit, all of it in a queue
    with pytest.raises(TimeoutError):
        async with working_time(0.01, waited):
            await asyncio.sleep(0.03)
            queued, queueing = waited(), False
            await asyncio.Event().wait()


async def test_cancellation_is_not_taken_for_a_time_out() -> None:
    async def work() -> None:
        async with working_time(60, lambda: 0.0):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
