"""Tools slower than the model: what a rollout's time becomes as the offered load grows, with and without admission.

    python benchmarks/admission.py [--quick]

Real rollouts (scripted engine, a pool of eight slots that each rollout holds from its first call to its end) with
sixteen and with a hundred and sixty at once. With admission the time from the first token to the end must stay flat;
without it rollouts spend their tokens and wait.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # a busy machine takes its time

from ray import cloudpickle

import agentfly as af
from agentfly.models.spec import ModelSpec
from agentfly.models.tiny import build_tokenizer
from agentfly.resources import ManagerHandle
from agentfly.rollout.request import GroupRequest, RolloutOptions
from agentfly.rollout.runner import RolloutRunner
from agentfly.rollout.session import resource_session

cloudpickle.register_pickle_by_value(sys.modules[__name__])
SLOTS = 8
FLAT = 1.3


class Slow(af.Resource):
    """Takes its time."""

    async def work(self, seconds: float) -> None:
        """As long as is said."""
        await asyncio.sleep(seconds)


BOX = af.ResourceSpec(Slow, name="box", slots=SLOTS, min_size=SLOTS, max_size=SLOTS)


@af.tool(claims=[BOX])
async def work(seconds: float, ctx: af.Context) -> str:
    """Work.

    Args:
        seconds: how long.
    """
    await (await ctx.acquire(BOX)).work(seconds)
    return "done"


def script(prompt: str, turn: int, seed: int) -> str:
    """Two calls, then the answer."""
    if turn == 2:
        return "done"
    seconds = random.Random(f"{prompt}{turn}{seed}").uniform(0.2, 0.8)
    return f'<tool_call>\n{{"name": "work", "arguments": {{"seconds": {seconds:.3f}}}}}\n</tool_call>'


@dataclass(frozen=True)
class Outcome:
    """Of one run.

    Attributes:
        latency: mean seconds from a rollout's beginning with the model to its end.
        waiting: of those, in the pool's queue.
        rate: rollouts a second.
    """

    latency: float
    waiting: float
    rate: float


async def run(manager: ManagerHandle, folder: Path, concurrency: int, rollouts: int, *, admission: bool) -> Outcome:
    """Real rollouts; those of the ramp at the start count too."""
    model = ModelSpec(
        engine="scripted",
        name="model",
        path=str(folder),
        family="qwen3",
        options={"script": script, "seconds_per_token": 0.005},
    )
    agent = af.Agent(tools=[work], max_turns=4, prompt="{prompt}")
    options = RolloutOptions(workers=1, concurrency=concurrency, admission=admission, timeout=None)
    requests = (GroupRequest(f"g{n}", af.Task(f"t{n}", {"prompt": f"task {n}"}), 1) for n in range(rollouts))
    ends = []
    async with RolloutRunner(agent, model, options, manager=manager) as runner:
        started = time.monotonic()
        async for group in runner.run(requests):
            assert group.trajectories[0].error is None, group.trajectories[0].error
            ends.append(group.trajectories[0].timing)
        took = time.monotonic() - started
    return Outcome(mean(end.total for end in ends), mean(end.waiting for end in ends), rollouts / took)


def main() -> None:
    """Run all four, and fail when the time isn't flat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a third of the rollouts")
    rollouts = 160 if parser.parse_args().quick else 480
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {SLOTS} slots, {rollouts} rollouts", flush=True)
    latency = asyncio.run(compare(rollouts))
    growth = {on: latency[on, 20 * SLOTS] / latency[on, 2 * SLOTS] for on in (True, False)}
    print(f"ten times the load takes {growth[True]:.2f} x the time with admission, {growth[False]:.2f} x without")
    assert growth[True] <= FLAT, f"with admission the time grows {growth[True]:.2f} fold"


async def compare(rollouts: int) -> dict[tuple[bool, int], float]:
    """Mean seconds from first token to end, with and without admission, by rollouts at once."""
    latency = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_tokenizer([script(f"task {n}", n % 3, n) for n in range(50)], 420, folder)
        async with resource_session("admission") as manager:
            for admission, concurrency in itertools.product((True, False), (2 * SLOTS, 20 * SLOTS)):
                outcome = await run(manager, folder, concurrency, rollouts, admission=admission)
                latency[admission, concurrency] = outcome.latency
                print(
                    f"admission {'on ' if admission else 'off'}, {concurrency:4} at once: first token to end "
                    f"{outcome.latency:6.2f} s (of it waiting {outcome.waiting:6.2f} s), "
                    f"{outcome.rate:5.2f} rollouts/s",
                    flush=True,
                )
    return latency


if __name__ == "__main__":
    main()
