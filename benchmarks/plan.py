"""The simulator behind `agentfly plan`: how fast it is, and how well it predicts real runs.

    python benchmarks/plan.py [--quick]

1. 100,000 rollouts over 10,000 slots (and an engine), on one core: has to take less than a minute.
2. A real run (scripted engine, a resource with known latencies) writes its event log. From that the simulator
   predicts the wall time of further real runs with other pool sizes: has to be within 15%.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("RAY_AUTH_MODE", "disabled")

from ray import cloudpickle

import agentfly as af
from agentfly.models.spec import ModelSpec
from agentfly.models.tiny import build_tokenizer
from agentfly.planning.distributions import Constant, LogNormal
from agentfly.planning.learning import learn_events
from agentfly.planning.model import PoolModel, Program, Take, Workload
from agentfly.planning.simulation import Simulation
from agentfly.resources import ResourceClient
from agentfly.resources.core.types import PoolLimits
from agentfly.rollout.request import GroupRequest, RolloutOptions
from agentfly.rollout.runner import RolloutRunner
from agentfly.rollout.session import resource_session

cloudpickle.register_pickle_by_value(sys.modules[__name__])
LIMIT = 60.0
WITHIN = 0.15
CONCURRENT = 64


# 1. Speed


def speed(rollouts: int, slots: int) -> float:
    """Seconds that the simulation takes; twice as many rollouts at once as there are slots."""
    pools = {
        "model": PoolModel(PoolLimits("model", slots=256, shared=True, min_size=20_480, max_size=20_480)),
        "box": PoolModel(PoolLimits("box", slots=16, max_size=slots), start=LogNormal(2, 5), reset=LogNormal(0.1, 1)),
    }
    generating, call = LogNormal(20, 100), LogNormal(10, 60)

    def program(rng: random.Random) -> Program:
        return (Take("model"), generating.draw(rng), Take("box"), call.draw(rng), generating.draw(rng))

    began = time.process_time()
    workload = Workload(program, rollouts, concurrent=2 * slots, claims=("model", "box"))
    outcome = Simulation(pools, workload).run()
    spent = time.process_time() - began
    print(
        f"{rollouts:,} rollouts over {slots:,} slots: {spent:.1f} s of one core, "
        f"{outcome.events / spent:,.0f} events of the core a second; simulated {outcome.seconds:,.0f} s, "
        f"{outcome.waiting('box'):.1f} s of {outcome.latency:.1f} s waiting for a slot"
    )
    return spent


# 2. Truth


class Slow(af.Resource):
    """Takes its time for everything."""

    async def start(self) -> None:
        """One second."""
        await asyncio.sleep(1.0)

    async def work(self, seconds: float) -> None:
        """As long as is said."""
        await asyncio.sleep(seconds)

    async def reset(self) -> None:
        """Nearly half a second."""
        await asyncio.sleep(0.4)


def box(size: int) -> af.ResourceSpec[Slow]:
    """The pool, with so many slots."""
    return af.ResourceSpec(Slow, name="box", slots=8, max_size=size)


def agent_with(size: int) -> af.Agent:
    """An agent whose tool works in a slow resource."""
    spec = box(size)

    @af.tool(claims=[spec])
    async def work(seconds: float, ctx: af.Context) -> str:
        """Work.

        Args:
            seconds: how long.
        """
        await (await ctx.acquire(spec)).work(seconds)
        return "done"

    return af.Agent(tools=[work], max_turns=4, prompt="{prompt}")


def script(prompt: str, turn: int, seed: int) -> str:
    """Two calls of different lengths, then the answer; `warm` answers at once."""
    if turn == 2 or "warm" in prompt:
        return "that was all there was to do " * random.Random(seed).randint(1, 8)
    seconds = random.Random(f"{prompt}{turn}{seed}").lognormvariate(0.0, 0.5)
    return f'<tool_call>\n{{"name": "work", "arguments": {{"seconds": {seconds:.3f}}}}}\n</tool_call>'


async def real_run(folder: Path, size: int, rollouts: int, log: Path) -> float:
    """Wall time of real rollouts, worker and engine up; writes an event log."""
    model = ModelSpec(
        engine="scripted",
        name="model",
        path=str(folder),
        family="qwen3",
        options={"script": script, "seconds_per_token": 0.03},
    )
    options = RolloutOptions(workers=1, concurrency=CONCURRENT)

    def requests(name: str, count: int) -> Iterator[GroupRequest]:
        return (GroupRequest(f"{name}{n}", af.Task(f"{name}{n}", {"prompt": f"{name} {n}"}), 4) for n in range(count))

    async with (
        resource_session("benchmark", event_log=log) as manager,
        RolloutRunner(agent_with(size), model, options, manager=manager) as runner,
    ):
        async for _ in runner.run(requests("warm", 1)):
            pass
        began = time.monotonic()
        async for group in runner.run(requests("task", rollouts // 4)):
            assert not [end.error for end in group if end.error]
        seconds = time.monotonic() - began
        client = await ResourceClient.connect(manager)
        assert (await client.stats())["box"].leases == rollouts
        await client.close()
    return seconds


def predict(log: Path, size: int, rollouts: int) -> float:
    """Wall time of rollouts as they are in the log, on a pool of the size."""
    learned = learn_events(log)
    pools = {
        name: PoolModel(limits, learned.starts.get(name, Constant(0)), learned.resets.get(name, Constant(0)))
        for name, limits in learned.limits.items()
    }
    pools["model"] = replace(pools["model"], start=Constant(0))  # it is up
    pools["box"] = replace(pools["box"], limits=box(size).limits)
    programs = [program for program in learned.programs if Take("box") in program]
    workload = Workload(lambda rng: rng.choice(programs), rollouts, CONCURRENT, claims=("model", "box"))
    runs = [Simulation(pools, workload, seed=seed).run().seconds for seed in range(5)]
    return sum(runs) / len(runs)


def fastest(folder: Path, size: int, rollouts: int, runs: int) -> tuple[float, Path]:
    """Wall time and event log of the fastest of some runs: the one that other work on the machine disturbed least."""
    logs = [folder / f"{size}-{number}.jsonl" for number in range(runs)]
    return min((asyncio.run(real_run(folder, size, rollouts, log)), log) for log in logs)


def truth(rollouts: int, learn_from: int, sizes: list[int], runs: int) -> list[float]:
    """Errors of the predictions, as shares of what was measured."""
    errors = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_tokenizer([script(f"task {n}", n % 3, n) for n in range(50)], 420, folder)
        measured, log = fastest(folder, learn_from, rollouts, runs)
        print(f"learnt from {rollouts} real rollouts on {learn_from} slots ({measured:.1f} s)", flush=True)
        for size in sizes:
            predicted = predict(log, size, rollouts)
            measured, _ = fastest(folder, size, rollouts, runs)
            errors.append(predicted / measured - 1)
            print(
                f"{size} slots: predicted {predicted:.1f} s, measured {measured:.1f} s, {errors[-1]:+.1%}", flush=True
            )
    return errors


def main() -> None:
    """Run both, and fail when one doesn't hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a tenth of the rollouts, one prediction from one run")
    quick = parser.parse_args().quick
    spent = speed(10_000, 1_000) if quick else speed(100_000, 10_000)
    errors = truth(60, 16, [8], 1) if quick else truth(160, 16, [8, 32], 2)
    assert spent < LIMIT, f"{spent:.0f} s for the simulation, more than {LIMIT:.0f}"
    assert max(map(abs, errors)) <= WITHIN, f"a prediction is off by {max(map(abs, errors)):.0%}"


if __name__ == "__main__":
    main()
