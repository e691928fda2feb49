"""Rollouts on a real Ray cluster: pools, workers and engines that are killed, and what the runner makes of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import ray
from ray import cloudpickle
from rollout.tiny_tokenizer import build_folder

import agentfly.agent as af
from agentfly.context import Context, Task
from agentfly.models.spec import ModelSpec
from agentfly.resources import ManagerHandle, Resource, ResourceClient, ResourceSpec, start_manager, stop_manager
from agentfly.rollout.request import GroupRequest, RolloutOptions
from agentfly.rollout.runner import RolloutRunner
from agentfly.rollout.trajectory import Group

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = pytest.mark.usefixtures("ray_cluster")


class Notebook(Resource):
    """Remembers lines, until it is reset."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    async def append(self, line: str) -> list[str]:
        self._lines.append(line)
        return self._lines

    async def pid(self) -> int:
        return os.getpid()

    async def wait_for(self, path: str) -> None:
        while not os.path.exists(path):  # noqa: ASYNC240
            await asyncio.sleep(0.01)

    async def reset(self) -> None:
        self._lines.clear()


NOTEBOOK = ResourceSpec(Notebook, slots=4, max_size=8)


@af.tool
async def note(line: str, ctx: Context) -> str:
    """Write a line down.

    Args:
        line: the line.
    """
    notebook = await ctx.acquire(NOTEBOOK)
    return ",".join(await notebook.append(line))


@af.reward
def lines(final_response: str) -> float:
    return float(len(final_response.split(",")))


def call(line: str) -> str:
    return f'<tool_call>\n{{"name": "note", "arguments": {{"line": "{line}"}}}}\n</tool_call>'


def three_notes(prompt: str, turn: int, seed: int) -> str:
    """Three calls, then the last observation as the answer."""
    if turn < 3:
        return call("abc"[turn])
    return prompt.rsplit("<tool_response>\n", 1)[1].split("\n</tool_response>", 1)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def manager() -> AsyncIterator[ManagerHandle]:
    handle = start_manager(f"test-{os.urandom(4).hex()}", client_ttl=3.0)
    yield handle
    await stop_manager(handle)


def scripted(folder: str, script: object = three_notes, **options: object) -> ModelSpec:
    return ModelSpec(engine="scripted", path=folder, family="qwen3", options={"script": script, **options})


AGENT = af.Agent(tools=[note], reward=lines, max_turns=6)


def requests(count: int, size: int = 1) -> list[GroupRequest]:
    return [GroupRequest(f"g{n}", Task(f"t{n}", {"prompt": f"note {n}"}), size) for n in range(count)]


async def collect(runner: RolloutRunner, wanted: list[GroupRequest]) -> list[Group]:
    return [group async for group in runner.run(wanted)]


async def test_groups_come_back_whole_and_slots_are_clean(manager: ManagerHandle, folder: str) -> None:
    options = RolloutOptions(workers=2, concurrency=8)
    async with RolloutRunner(AGENT, scripted(folder), options, manager=manager) as runner:
        groups = await collect(runner, requests(10, size=4))
        assert sorted(group.id for group in groups) == sorted(f"g{n}" for n in range(10))
        for group in groups:
            assert [member.index for member in group] == [0, 1, 2, 3]
            for member in group:
                assert member.error is None
                assert (member.finish_reason, member.turns, member.tool_calls) == ("stop", 4, 3)
                # Eight slots for forty rollouts: whoever saw another's lines would answer differently.
                assert member.final_response == "a,b,c"
                assert member.reward == 3.0
                assert len(member.segments) == 1
                assert member.segments[0].mask.sum() > 0
        again = await collect(runner, requests(3))
        assert len(again) == 3
        client = await ResourceClient.connect(manager)
        stats = (await client.stats())["Notebook"]
        assert stats.size <= 8
        assert stats.leases == 43
        await client.close()


async def test_weights_reach_engines_and_tokens_carry_their_version(manager: ManagerHandle, folder: str) -> None:
    async with RolloutRunner(AGENT, scripted(folder), RolloutOptions(), manager=manager) as runner:
        await runner.update_weights({}, 7)
        (group,) = await collect(runner, requests(1))
    segment = group.trajectories[0].segments[0]
    assert set(segment.versions[segment.mask]) == {7}
    assert set(segment.versions[~segment.mask]) == {-1}


async def test_a_killed_worker_loses_nothing_and_delivers_nothing_twice(
    manager: ManagerHandle, folder: str, tmp_path: Path
) -> None:
    gate, worker = tmp_path / "gate", tmp_path / "worker"

    @af.tool
    async def wait(ctx: Context) -> str:
        """Wait at the gate."""
        worker.write_text(str(os.getpid()))
        notebook = await ctx.acquire(NOTEBOOK)
        await notebook.wait_for(str(gate))
        return "through"

    def script(prompt: str, turn: int, seed: int) -> str:
        return '<tool_call>\n{"name": "wait", "arguments": {}}\n</tool_call>' if turn == 0 else "done"

    agent = af.Agent(tools=[wait])
    options = RolloutOptions(workers=1, concurrency=6)
    async with RolloutRunner(agent, scripted(folder, script), options, manager=manager) as runner:
        running = asyncio.create_task(collect(runner, requests(12)))
        client = await ResourceClient.connect(manager)
        while (await client.stats()).get("Notebook") is None or (await client.stats())["Notebook"].leased < 6:
            await asyncio.sleep(0.05)
        os.kill(int(worker.read_text()), signal.SIGKILL)
        gate.touch()
        groups = await running
        await client.close()
    assert sorted(group.id for group in groups) == sorted(f"g{n}" for n in range(12))
    assert all(group.trajectories[0].final_response == "done" for group in groups)


async def test_rollouts_go_on_when_the_manager_is_killed(manager: ManagerHandle, folder: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    @af.tool
    async def wait(ctx: Context) -> str:
        """Wait at the gate."""
        notebook = await ctx.acquire(NOTEBOOK)
        await notebook.wait_for(str(gate))
        return "through"

    def script(prompt: str, turn: int, seed: int) -> str:
        return '<tool_call>\n{"name": "wait", "arguments": {}}\n</tool_call>' if turn == 0 else "done"

    options = RolloutOptions(workers=1, concurrency=12)
    async with RolloutRunner(af.Agent(tools=[wait]), scripted(folder, script), options, manager=manager) as runner:
        running = asyncio.create_task(collect(runner, requests(12)))
        client = await ResourceClient.connect(manager)
        while (stats := (await client.stats()).get("Notebook")) is None or (stats.leased, stats.waiting) != (8, 4):
            await asyncio.sleep(0.05)
        os.kill(await manager.__ray_call__.remote(lambda _: os.getpid()), signal.SIGKILL)
        gate.touch()
        groups = await running
        await client.close()
    ends = [group.trajectories[0] for group in groups]
    assert [(end.final_response, end.attempt) for end in ends] == [("done", 0)] * 12, "none had to start over"


async def test_a_killed_host_starts_its_rollouts_over(manager: ManagerHandle, folder: str, tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    @af.tool
    async def risky(ctx: Context) -> str:
        """Be there when the host dies, once."""
        notebook = await ctx.acquire(NOTEBOOK)
        if not killed.exists():
            killed.touch()
            os.kill(await notebook.pid(), signal.SIGKILL)
        await notebook.append("still here")
        return "alive"

    def script(prompt: str, turn: int, seed: int) -> str:
        return '<tool_call>\n{"name": "risky", "arguments": {}}\n</tool_call>' if turn == 0 else "done"

    agent = af.Agent(tools=[risky])
    async with RolloutRunner(agent, scripted(folder, script), RolloutOptions(), manager=manager) as runner:
        groups = await collect(runner, requests(4))
    ends = [group.trajectories[0] for group in groups]
    assert [end.finish_reason for end in ends] == ["stop"] * 4
    assert [end.messages[2]["content"] for end in ends] == ["alive"] * 4
    assert max(end.attempt for end in ends) == 1


async def test_a_resource_that_cannot_start_is_an_error_of_the_rollout_not_a_hang(
    manager: ManagerHandle, folder: str
) -> None:
    class Broken(Resource):
        async def start(self) -> None:
            raise OSError("no such device")

    spec = ResourceSpec(Broken, start_retries=0)

    @af.tool
    async def use(ctx: Context) -> str:
        """Use it."""
        await ctx.acquire(spec)
        return "used"

    def script(prompt: str, turn: int, seed: int) -> str:
        return '<tool_call>\n{"name": "use", "arguments": {}}\n</tool_call>'

    agent = af.Agent(tools=[use])
    options = RolloutOptions(max_attempts=2)
    async with RolloutRunner(agent, scripted(folder, script), options, manager=manager) as runner:
        (group,) = await collect(runner, requests(1))
    (end,) = group.trajectories
    assert end.finish_reason == "error"
    assert end.error is not None
    assert "no such device" in end.error
    assert not end.trainable


async def test_leaving_in_the_middle_gives_everything_back(manager: ManagerHandle, folder: str) -> None:
    @af.tool(timeout=None)
    async def hang(ctx: Context) -> str:
        """Hold a notebook for ever."""
        await ctx.acquire(NOTEBOOK)
        await asyncio.Event().wait()
        return ""

    def script(prompt: str, turn: int, seed: int) -> str:
        return '<tool_call>\n{"name": "hang", "arguments": {}}\n</tool_call>'

    client = await ResourceClient.connect(manager)
    async with RolloutRunner(
        af.Agent(tools=[hang]), scripted(folder, script), RolloutOptions(), manager=manager
    ) as runner:
        running = asyncio.create_task(collect(runner, requests(4)))
        while (await client.stats()).get("Notebook") is None or (await client.stats())["Notebook"].leased < 4:
            await asyncio.sleep(0.05)
        running.cancel()
    while (stats := (await client.stats())["Notebook"]).leased or stats.resetting:
        await asyncio.sleep(0.05)
    assert stats.idle == stats.size
    await client.close()


async def test_stopping_the_manager_ends_every_host(folder: str) -> None:
    handle = start_manager("test-ends")
    async with RolloutRunner(AGENT, scripted(folder), RolloutOptions(), manager=handle) as runner:
        await collect(runner, requests(2))
    await stop_manager(handle)
    left = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True) if "test-ends" in actor["name"]]
    assert left == []
