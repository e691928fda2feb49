"""Ways in which an engine of leases has been seen to fail, each as a test of this one, through the real manager."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from resources.toys import Counter, Recorder, events

from agentfly.context import Context, Task
from agentfly.errors import AcquireTimeout
from agentfly.resources import ResourceClient, ResourceSpec


def context(client: ResourceClient, name: str, **options: object) -> Context:
    return Context(rollout_id=name, group_id="g", task=Task("t"), client=client, **options)  # type: ignore[arg-type]


async def test_a_larger_spec_never_gets_a_pooled_smaller_resource(client: ResourceClient) -> None:
    """Asked for 64 GB after a container of 1 GB was pooled, it gave the one of 1 GB."""
    small, large = (ResourceSpec(Counter, name="memory", args={"start_at": size}) for size in (1, 64))
    (await client.acquire(small)).release()
    assert await (await client.acquire(large)).resource.add(0) == 64


async def test_two_specs_of_one_rollout_are_two_resources(client: ResourceClient) -> None:
    """A second spec under the same rollout got the first spec's resource."""
    ctx = context(client, "r")
    first = await ctx.acquire(ResourceSpec(Counter, name="twin", args={"label": "first"}))
    second = await ctx.acquire(ResourceSpec(Counter, name="twin", args={"label": "second"}))
    assert (await first.state())[0] == "first"
    assert (await second.state())[0] == "second"
    await ctx.close()


@pytest.mark.parametrize("capacity", [1, 2])
async def test_cancelled_while_starting_loses_no_slot(client: ResourceClient, capacity: int) -> None:
    """Cancelled while its resource started, at capacity 1, the slot was lost for good; released then, it leaked."""
    spec = ResourceSpec(Counter, name=f"starting{capacity}", max_size=capacity)
    for _ in range(3):
        task = asyncio.create_task(client.acquire(spec))
        while spec.name not in await client.stats():
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    leases = [await client.acquire(spec, timeout=60) for _ in range(capacity)]
    for lease in leases:
        lease.release()
    await client.acquire(spec, timeout=60)
    assert (await client.stats())[spec.name].size <= capacity


async def test_the_acquire_timeout_is_kept(client: ResourceClient) -> None:
    """acquire(timeout=0.5) at capacity still waited after 3 s."""
    spec = ResourceSpec(Counter, name="timeout", max_size=1)
    await client.acquire(spec)
    async with asyncio.timeout(3):
        with pytest.raises(AcquireTimeout):
            await client.acquire(spec, timeout=0.5)


async def test_two_types_in_opposite_order_dont_deadlock(client: ResourceClient) -> None:
    """Two rollouts that took two types in opposite orders waited for ever."""
    left, right = (ResourceSpec(Counter, name=name, max_size=1) for name in ("left", "right"))
    both_started = asyncio.Barrier(2)

    async def rollout(name: str, first: ResourceSpec[Counter], second: ResourceSpec[Counter]) -> int:
        ctx = context(client, name, claims=(left, right))
        await both_started.wait()
        one = await ctx.acquire(first)
        two = await ctx.acquire(second)
        result = await one.add() + await two.add()
        await ctx.close()
        return result

    pairs = [(left, right), (right, left)]
    for turn in range(5):
        work = [rollout(f"{turn}-{index}", *pair) for index, pair in enumerate(pairs)]
        assert await asyncio.wait_for(asyncio.gather(*work), 60) == [2, 2]


async def test_many_waiters_are_all_served_in_order(client: ResourceClient) -> None:
    """5,000 waiters on 8 slots took 30 times as long as 1,000, the last of the first came before the first of the last.

    What it costs is in test_scaling.py and benchmarks/resources.py.
    """
    spec = ResourceSpec(Counter, name="many", shared=True, slots=8, max_size=8)
    order: list[int] = []

    async def one(age: int) -> None:
        lease = await client.acquire(spec, priority=age)
        order.append(age)
        lease.release()

    first = [await client.acquire(spec) for _ in range(8)]
    tasks = [asyncio.create_task(one(age)) for age in range(2000)]
    while (await client.stats())["many"].waiting < 2000:
        await asyncio.sleep(0.01)
    for lease in first:
        lease.release()
    await asyncio.gather(*tasks)
    # Two answers of the manager may pass each other, each with as many grants as there are slots at most.
    assert max(abs(age - place) for place, age in enumerate(order)) <= 16


async def test_what_a_rollout_leaves_is_gone_for_the_next(client: ResourceClient, tmp_path: Path) -> None:
    """Closed in the middle of a call, cancelled, or never closed by a tool: the next rollout finds a clean resource."""
    spec = ResourceSpec(Recorder, name="clean", args={"folder": str(tmp_path)}, max_size=1)
    ctx = context(client, "a")
    box = await ctx.acquire(spec)
    await box.set_version(7)
    await ctx.close()
    await (await client.acquire(spec, timeout=60)).resource.get_version()
    assert events(tmp_path, "reset") == 1
