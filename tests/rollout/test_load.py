"""Thousands of rollouts through the whole rollout layer: how fast, and that no process grows with them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from ray import cloudpickle
from rollout.tiny_tokenizer import build_folder

import agentfly.agent as af
from agentfly.context import Task
from agentfly.models.spec import ModelSpec
from agentfly.resources import start_manager, stop_manager
from agentfly.rollout.request import GroupRequest, RolloutOptions
from agentfly.rollout.runner import RolloutRunner

cloudpickle.register_pickle_by_value(sys.modules[__name__])

GROUPS, GROUP_SIZE, TURNS = 125, 8, 4
MEBIBYTE = 1 << 20


@af.tool
def nothing() -> str:
    """Do nothing."""
    return "done"


def script(prompt: str, turn: int, seed: int) -> str:
    """Calls in all turns but the last."""
    return '<tool_call>\n{"name": "nothing", "arguments": {}}\n</tool_call>' if turn < TURNS - 1 else "that was all"


def memory() -> dict[str, int]:
    """Resident bytes of this process and of each Ray worker process that it has brought about, by what runs there."""
    sizes = {"driver": psutil.Process().memory_info().rss}
    for process in psutil.Process().children(recursive=True):
        title = " ".join(process.cmdline()).strip()
        if title.startswith("ray::") and "IDLE" not in title and "Agent" not in title:
            kind = title.split(".")[0]  # what comes behind is what it does at this moment
            sizes[f"{kind} {process.pid}"] = process.memory_info().rss
    return sizes


async def play(runner: RolloutRunner, name: str) -> float:
    """A thousand rollouts; returns how many a second."""
    requests = (GroupRequest(f"{name}-{n}", Task(f"t{n}", {"prompt": f"task {n}"}), GROUP_SIZE) for n in range(GROUPS))
    started, count = time.monotonic(), 0
    async for group in runner.run(requests):
        for end in group:
            assert (end.error, end.finish_reason, end.turns, end.tool_calls) == (None, "stop", TURNS, TURNS - 1)
            count += 1
    assert count == GROUPS * GROUP_SIZE == 1000
    return count / (time.monotonic() - started)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("ray_cluster")
async def test_a_thousand_rollouts_of_four_turns_and_memory_stays_flat(tmp_path: Path) -> None:
    model = ModelSpec(engine="scripted", path=build_folder(tmp_path), family="qwen3", options={"script": script})
    manager = start_manager(f"test-{os.urandom(4).hex()}")
    async with RolloutRunner(af.Agent(tools=[nothing]), model, RolloutOptions(), manager=manager) as runner:
        rates = [await play(runner, "first")]
        before = memory()
        rates += [await play(runner, "second"), await play(runner, "third")]
        after = memory()
    await stop_manager(manager)
    print(f"\nrollouts a second: {', '.join(f'{rate:.0f}' for rate in rates)}")
    for name, size in after.items():
        print(f"{name}: {before.get(name, 0) / MEBIBYTE:.0f} MiB, then {size / MEBIBYTE:.0f} MiB")
    assert before.keys() == after.keys()
    assert len(before) >= 4  # the driver, the manager, an engine's host, a rollout worker
    grown = {name: (before[name], size) for name, size in after.items() if size - before[name] > 15 * MEBIBYTE}
    assert grown == {}
