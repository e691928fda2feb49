"""Puts what is known of a job together: its pools, its times, its prices."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentfly.errors import ConfigError
from agentfly.planning.described import Times
from agentfly.planning.distributions import Constant
from agentfly.planning.learning import Learned
from agentfly.planning.model import NOTHING, PoolModel, Program, Programs, Take, Workload
from agentfly.resources.core.types import PoolLimits


@dataclass(frozen=True)
class Scenario:
    """What is simulated: pools by name, and the rollouts on them."""

    pools: Mapping[str, PoolModel]
    workload: Workload

    def with_size(self, pool: str, size: int) -> Scenario:
        """With another bound of a pool; one whose size is fixed stays so."""
        model = self.pools[pool]
        limits = model.limits
        least = size if limits.min_size == limits.max_size else min(limits.min_size, size)
        resized = replace(model, limits=replace(limits, min_size=least, max_size=size))
        return replace(self, pools={**self.pools, pool: resized})

    def size(self, pool: str) -> int:
        """Slots of a pool at most."""
        return self.pools[pool].limits.max_size

    def with_workload(self, *, rollouts: int | None = None, concurrent: int | None = None) -> Scenario:
        """With other numbers of rollouts."""
        work = self.workload
        return replace(
            self,
            workload=replace(
                work,
                rollouts=work.rollouts if rollouts is None else rollouts,
                concurrent=work.concurrent if concurrent is None else concurrent,
            ),
        )


@dataclass(frozen=True)
class JobShape:
    """What a job file says.

    Attributes:
        model: the pool of engines.
        tools: pools that tools claim.
        concurrent: rollouts at once, over all workers.
        per_step: rollouts that an update learns from; None where nothing is trained.
    """

    model: PoolLimits
    tools: Sequence[PoolLimits]
    concurrent: int
    per_step: int | None


def build_scenario(
    job: JobShape,
    rollouts: int,
    *,
    times: Times,
    learned: Learned,
    played: Sequence[Program] = (),
    prices: Mapping[str, float],
) -> Scenario:
    """The scenario of a job. What a file of times says of a pool goes before what a log tells of it; rollouts are
    taken from the log if there is one, else from trajectories, else from the file.

    Args:
        played: programs of rollouts, learnt from trajectories.
        prices: of a slot for an hour, by pool; they go before those of the file.

    Raises:
        ConfigError: nothing says how long rollouts take, or a pool is named that the job hasn't.
    """
    limits = {**learned.limits, **{pool.name: pool for pool in (job.model, *job.tools)}}
    programs = _programs(job, times, learned, played)
    for name, where in [*((pool, "times") for pool in times.pools), *((pool, "prices") for pool in prices)]:
        if name not in limits:
            raise ConfigError(f"{where}: the job has no pool {name!r}; the pools are: {', '.join(sorted(limits))}")
    pools = {name: _pool(pool, times, learned, prices) for name, pool in limits.items()}
    unknown = {step.pool for program in (*learned.programs, *played) for step in program if isinstance(step, Take)}
    if missing := unknown - pools.keys():
        raise ConfigError(f"nothing says what these pools are: {', '.join(sorted(missing))}")
    between = times.between_steps if job.per_step is not None else Constant(0.0)
    return Scenario(pools, Workload(programs, rollouts, job.concurrent, job.per_step, between, tuple(pools)))


def _programs(job: JobShape, times: Times, learned: Learned, played: Sequence[Program]) -> Programs:
    if learned.programs:
        return learned.program
    if played:
        return lambda rng: rng.choice(played)
    if times.turns is not None:
        return functools.partial(times.program, model=job.model.name)
    raise ConfigError(
        "nothing says how long rollouts take: give an event log (--events), trajectories, or times (--times) with "
        "rollout.turns"
    )


def _pool(limits: PoolLimits, times: Times, learned: Learned, prices: Mapping[str, float]) -> PoolModel:
    said = times.pools.get(limits.name)
    start, reset = learned.starts.get(limits.name, NOTHING), learned.resets.get(limits.name, NOTHING)
    price = 0.0
    if said is not None:
        start, reset, price = said.start or start, said.reset or reset, said.price or 0.0
    return PoolModel(limits, start, reset if limits.resets else NOTHING, prices.get(limits.name, price))
