"""Latency of a step: the bare game or package, the environment in this process, and in a pool on Ray.

    python benchmarks/envs.py [--steps 300]

What a pool adds is one call to the host; `ray` is the price of such a call that does nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import ray
from agentfly.envs.chess import CHESS
from agentfly.envs.chess import make_tasks as chess_tasks
from agentfly.envs.games import GAMES
from agentfly.envs.games import make_tasks as games_tasks
from agentfly.envs.gym import gym_resource
from agentfly.envs.household import HOUSEHOLD
from agentfly.envs.household import make_tasks as household_tasks
from agentfly.envs.textarena import textarena_resource
from agentfly.envs.webshop import SHOP
from agentfly.envs.webshop import make_tasks as webshop_tasks

from agentfly.resources import ResourceClient, ResourceSpec
from agentfly.rollout.session import resource_session

Row = dict[str, Any]
CASES: Sequence[tuple[str, ResourceSpec[Any], Row, Sequence[str]]] = (
    ("webshop", SHOP, dict(webshop_tasks(1)[0].fields), ["search[chair]", "click[next >]", "click[back to search]"]),
    ("household", HOUSEHOLD, dict(household_tasks(1)[0].fields), ["go to cabinet 1", "open cabinet 1", "inventory"]),
    ("chess", CHESS, dict(chess_tasks(1)[0].fields), ["no move", "a1a1"]),
    ("games", GAMES, dict(games_tasks(1)[0].fields), ["0", "none"]),
    ("FrozenLake-v1", gym_resource("FrozenLake-v1"), {"seed": 0}, ["left"]),
    ("MiniGrid-DoorKey-8x8-v0", gym_resource("MiniGrid-DoorKey-8x8-v0"), {"seed": 0}, ["left", "forward"]),
    ("textarena TowerOfHanoi", textarena_resource("TowerOfHanoi-v0"), {"seed": 0}, ["[A C]", "[C A]"]),
)


async def median(
    step: Callable[[str], Awaitable[Any]],
    actions: Sequence[str],
    steps: int,
    again: Callable[[], Awaitable[Any]] | None = None,
) -> float:
    """Milliseconds of a step; an episode that is over is begun again, which isn't counted."""
    taken = []
    for action in itertools.islice(itertools.cycle(actions), steps):
        started = time.perf_counter()
        result = await step(action)
        taken.append(time.perf_counter() - started)
        if again is not None and result.over:
            await again()
    return statistics.median(taken) * 1e3


async def measure(spec: ResourceSpec[Any], row: Row, actions: Sequence[str], steps: int, client: ResourceClient) -> Row:
    """Medians of bare, local and pooled steps."""
    environment: Any = spec.make()
    await environment.start()
    games = [environment.open(row)]

    async def bare(action: str) -> Any:
        return games[-1].step(action)

    async def open_again() -> None:
        games.append(environment.open(row))

    async def set_up() -> None:
        await environment.setup(options=row)

    found = {"bare": await median(bare, actions, steps, open_again)}
    await set_up()
    found["local"] = await median(environment.step, actions, steps, set_up)
    await environment.stop()
    lease = await client.acquire(spec, setup={"options": row})
    pooled = lease.resource
    found["pool"] = await median(pooled.step, actions, steps, lambda: pooled.begin(options=row))
    lease.release()
    return found


@ray.remote(num_cpus=0)
class Nothing:
    """An actor that does nothing."""

    async def step(self, action: str) -> None:
        """Nothing."""


async def run(steps: int) -> None:
    """Print a line for each environment."""
    async with resource_session("bench-envs") as manager:
        client = await ResourceClient.connect(manager)
        nothing = Nothing.remote()
        call = await median(lambda action: nothing.step.remote(action), ["x"], steps)
        print(f"ray: {call:.2f} ms for a call that does nothing")
        print(f"{'environment':26} {'bare':>8} {'local':>8} {'pool':>8}   ms a step, median of {steps}")
        for name, spec, row, actions in CASES:
            found = await measure(spec, row, actions, steps, client)
            print(f"{name:26} {found['bare']:8.3f} {found['local']:8.3f} {found['pool']:8.3f}", flush=True)
        await client.close()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    asyncio.run(run(parser.parse_args().steps))


if __name__ == "__main__":
    main()
