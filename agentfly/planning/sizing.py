"""Which pool holds a job up, and what sizes reach a throughput."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from agentfly.planning.model import NOTHING, Outcome
from agentfly.planning.scenario import Scenario
from agentfly.planning.simulation import Simulation

_WORTH_TELLING = 0.05  # of a rollout's time that it waits
_STEP = 0.04  # by which a pool grows while a target isn't met
_CLOSE = 0.995  # of the target is the target
_TRIES = 60
_SAMPLE = 2000  # rollouts that a trial needs at least


@dataclass(frozen=True)
class HoldUp:
    """The pool that a job waits for most.

    Attributes:
        share: of a rollout's time that it waits for it.
        doubled: rollouts a second with twice the slots.
    """

    pool: str
    share: float
    doubled: float


@dataclass(frozen=True)
class Sizing:
    """What reaches a target.

    Attributes:
        reached: whether that was possible; if not, `scenario` is the best there is: pools without a bound.
    """

    scenario: Scenario
    outcome: Outcome
    reached: bool


def simulate(scenario: Scenario, *, seed: int = 0) -> Outcome:
    """One run."""
    return Simulation(scenario.pools, scenario.workload, seed=seed).run()


def find_hold_up(scenario: Scenario, outcome: Outcome, *, seed: int = 0) -> HoldUp | None:
    """The pool that rollouts wait for most; None when they hardly wait at all."""
    pool = max(outcome.pools, key=outcome.waiting)
    share = outcome.waiting(pool) / outcome.latency if outcome.latency else 0.0
    if share < _WORTH_TELLING:
        return None
    doubled = simulate(scenario.with_size(pool, 2 * scenario.size(pool)), seed=seed)
    return HoldUp(pool, share, doubled.rate)


def size_for(scenario: Scenario, target: float, *, seed: int = 0) -> Sizing:
    """Sizes, and rollouts at once, that reach a number of rollouts a second; close to the smallest.

    By Little's law a pool needs as many slots as leases begin in the time that one lasts, its reset included. From
    there the pool that is waited for most grows until the simulation reaches the target.
    """
    trial, free = _unbounded(_sampled(scenario), target, seed)
    if free.rate < _CLOSE * target:
        return Sizing(trial, free, reached=False)
    most = {pool: trial.size(pool) for pool in trial.pools}
    for pool, use in simulate(_warm(trial), seed=seed).pools.items():
        load = target * (use.held + use.cleaned) / trial.workload.rollouts
        trial = trial.with_size(pool, min(most[pool], _rounded(trial, pool, load)))
    outcome = simulate(trial, seed=seed)
    for _ in range(_TRIES):
        if outcome.rate >= _CLOSE * target:
            break
        growing = [pool for pool in trial.pools if trial.size(pool) < most[pool]]
        if not growing:
            break
        pool = max(growing, key=simulate(_warm(trial), seed=seed).waiting)
        size = max(trial.size(pool) + 1, trial.size(pool) * (1 + _STEP))
        trial = trial.with_size(pool, min(most[pool], _rounded(trial, pool, size)))
        outcome = simulate(trial, seed=seed)
    return Sizing(trial, outcome, reached=outcome.rate >= _CLOSE * target)


def _sampled(scenario: Scenario) -> Scenario:
    """With as many rollouts as a trial needs, and no more."""
    work = scenario.workload
    needed = max(_SAMPLE, 5 * work.concurrent if work.per_step is None else 3 * work.per_step)
    return scenario.with_workload(rollouts=min(work.rollouts, needed))


def _unbounded(scenario: Scenario, target: float, seed: int) -> tuple[Scenario, Outcome]:
    """Pools in which nobody waits for a slot, and as many rollouts at once as the target needs."""
    concurrent = scenario.workload.concurrent
    for _ in range(_TRIES):
        trial = scenario.with_workload(concurrent=concurrent)
        if scenario.workload.per_step is None:
            trial = trial.with_workload(rollouts=max(scenario.workload.rollouts, 5 * concurrent))
        for pool in scenario.pools:
            trial = trial.with_size(pool, _rounded(trial, pool, max(scenario.size(pool), 2 * concurrent)))
        outcome = simulate(trial, seed=seed)
        if outcome.rate >= _CLOSE * target or concurrent >= (scenario.workload.per_step or math.inf):
            break
        concurrent = math.ceil(max(1.05 * concurrent, target * outcome.latency))
    return trial, outcome


def _warm(scenario: Scenario) -> Scenario:
    """With hosts that start at once: what a pool needs in the long run has nothing to do with its beginning."""
    pools = {name: replace(pool, start=NOTHING) for name, pool in scenario.pools.items()}
    return replace(scenario, pools=pools)


def _rounded(scenario: Scenario, pool: str, size: float) -> int:
    """A size that the pool can have: an engine is there whole or not at all."""
    limits = scenario.pools[pool].limits
    unit = limits.slots if limits.shared else 1
    return max(1, math.ceil(size / unit)) * unit
