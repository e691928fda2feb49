"""Admission in real runs: no more rollouts are under way than the claimed pool serves, and all of them end."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from ray import cloudpickle
from rollout.tiny_tokenizer import build_folder

import agentfly.agent as af
from agentfly.context import Context, Task
from agentfly.models.spec import ModelSpec
from agentfly.resources import Resource, ResourceClient, ResourceSpec, start_manager, stop_manager
from agentfly.rollout.request import GroupRequest, RolloutOptions
from agentfly.rollout.runner import RolloutRunner

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.usefixtures("ray_cluster")


class Gate(Resource):
    """Holds whoever comes until a file is there."""

    async def wait_for(self, path: str) -> None:
        while not os.path.exists(path):  # noqa: ASYNC240
            await asyncio.sleep(0.01)


def script(prompt: str, turn: int, seed: int) -> str:
    return '<tool_call>\n{"name": "wait", "arguments": {}}\n</tool_call>' if turn == 0 else "done"


@pytest.mark.parametrize(("admission", "expected"), [(True, 6), (False, 20)])
async def test_rollouts_begin_as_the_claimed_pool_can_serve_them(
    tmp_path: Path, admission: bool, expected: int
) -> None:
    gate = tmp_path / "gate"
    spec = ResourceSpec(Gate, slots=4, max_size=4)

    @af.tool(claims=[spec])
    async def wait(ctx: Context) -> str:
        """Wait at the gate."""
        await (await ctx.acquire(spec)).wait_for(str(gate))
        return "through"

    model = ModelSpec(
        engine="scripted", name="model", path=build_folder(tmp_path), family="qwen3", options={"script": script}
    )
    options = RolloutOptions(workers=2, concurrency=10, admission=admission)
    manager = start_manager(f"test-{os.urandom(4).hex()}")
    requests = [GroupRequest(f"g{n}", Task(f"t{n}", {"prompt": "go"})) for n in range(30)]
    async with RolloutRunner(af.Agent(tools=[wait]), model, options, manager=manager) as runner:
        client = await ResourceClient.connect(manager)

        async def collect() -> list[str | None]:
            return [group.trajectories[0].error async for group in runner.run(requests)]

        running = asyncio.create_task(collect())
        # Four have a slot, and all others that have begun wait for one.
        while (gated := (await client.stats()).get("Gate")) is None or (gated.leased, gated.waiting) != (
            4,
            expected - 4,
        ):
            await asyncio.sleep(0.05)
        for _ in range(3):
            assert (await client.stats())["model"].leased == expected
        gate.touch()
        assert await running == [None] * 30
        await client.close()
    await stop_manager(manager)
