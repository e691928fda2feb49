"""Sandboxes in a pool: leased by rollouts, clean for the next one, gone with their host."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
from sandbox.boxes import marked

from agentfly.context import Context, Task
from agentfly.resources import ManagerHandle, ResourceClient, start_manager, stop_manager
from agentfly.resources.sandbox import SandboxSpec

pytestmark = pytest.mark.usefixtures("ray_cluster")
MARK = f"pooled-{os.urandom(8).hex()}"
SPEC = SandboxSpec(name="pooled", slots=4, max_size=4, memory="256MiB", disk="1MiB", env={"MARK": MARK})


@pytest.fixture
async def manager() -> AsyncIterator[ManagerHandle]:
    handle = start_manager(f"sandboxes-{os.urandom(4).hex()}")
    yield handle
    await stop_manager(handle)


async def gone() -> bool:
    for _ in range(500):
        if not marked(MARK):
            return True
        await asyncio.sleep(0.05)
    return False


async def test_twenty_rollouts_on_four_sandboxes_never_meet(manager: ManagerHandle) -> None:
    client = await ResourceClient.connect(manager)

    async def rollout(number: int) -> None:
        ctx = Context(rollout_id=f"r{number}", group_id="g", task=Task("t"), client=client)
        box = await ctx.acquire(SPEC, setup={"files": {"mine.txt": str(number)}})
        assert "NameError" in str(await box.run_python("seen"))
        await box.run_python(f"seen = {number}")
        assert [entry.name for entry in await box.list()] == ["mine.txt"]
        assert await box.read("mine.txt") == str(number)
        assert (await box.run_python("seen")).value == str(number)
        with pytest.raises(FileNotFoundError):
            await box.read("yours.txt")
        await ctx.close()

    await asyncio.gather(*(rollout(number) for number in range(20)))
    stats = (await client.stats())["pooled"]
    assert stats.leases == 20
    assert stats.size == 4
    await client.close()
    await stop_manager(manager)
    assert await gone()


async def test_sandboxes_die_with_a_host_that_is_killed(manager: ManagerHandle) -> None:
    client = await ResourceClient.connect(manager)
    lease = await client.acquire(SPEC)
    assert (await lease.resource.run("sleep 600 & echo $!")).status == "ok"
    (host,) = {process.ppid() for process in marked(MARK) if process.name() == "bwrap"} - {0}
    os.kill(host, signal.SIGKILL)
    assert await gone()
    lease.release()
    again = await client.acquire(SPEC)
    assert (await again.resource.run_python("1")).value == "1"
    again.release()
    await client.close()


async def test_output_streams_through_the_lease(manager: ManagerHandle) -> None:
    client = await ResourceClient.connect(manager)
    ctx = Context(rollout_id="streams", group_id="g", task=Task("t"), client=client)
    box = await ctx.acquire(SPEC)
    pieces = []
    async for piece in box.stream("echo one; until [ -e go ]; do sleep 0.05; done; echo two"):
        pieces.append(piece.stdout)
        if piece.running and piece.stdout == "one\n":
            await box.write("go", "")
    assert "".join(pieces) == "one\ntwo\n"
    assert not piece.running
    await ctx.close()
    await client.close()
