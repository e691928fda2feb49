"""What a simulation is of: pools with their times, and rollouts as programs of work and leases."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from agentfly.planning.distributions import Constant, Distribution
from agentfly.resources.core.types import PoolLimits


class Take(NamedTuple):
    """A step: go on when there is a lease of the pool; one that is held already changes nothing."""

    pool: str


class Give(NamedTuple):
    """A step: give the pool's lease back. What is held at the end of a rollout comes back by itself."""

    pool: str


Program: TypeAlias = Sequence[float | Take | Give]
"""A rollout without its waiting: seconds of work, and what it takes and gives between them."""

Programs: TypeAlias = Callable[[random.Random], Program]
"""Draws the program of the next rollout."""

NOTHING = Constant(0.0)


@dataclass(frozen=True)
class PoolModel:
    """A pool and how long its hosts and slots take.

    Attributes:
        limits: as the scheduling core has them.
        start: seconds until a host is up.
        reset: seconds that a slot is made clean after a lease.
        price: of a slot for an hour, whether it is lent or not.
    """

    limits: PoolLimits
    start: Distribution = NOTHING
    reset: Distribution = NOTHING
    price: float = 0.0


@dataclass(frozen=True)
class Workload:
    """The rollouts of a job.

    Attributes:
        programs: where they come from.
        rollouts: how many.
        concurrent: at once, over all workers.
        per_step: rollouts that a step of training waits for before the next begins; None runs without steps.
        between_steps: seconds of learning between two steps.
        claims: pools that every rollout may hold at the same time.
    """

    programs: Programs
    rollouts: int
    concurrent: int
    per_step: int | None = None
    between_steps: Distribution = NOTHING
    claims: tuple[str, ...] = ()


@dataclass
class PoolUse:
    """What happened to a pool.

    Attributes:
        waits: seconds that each lease was waited for.
        held: seconds that slots were lent, together.
        cleaned: seconds that slots were being reset, together.
        slot_seconds: seconds that slots existed, from the request for their host to its end.
        peak: slots at most.
        starts: hosts.
    """

    waits: list[float] = field(default_factory=list)
    held: float = 0.0
    cleaned: float = 0.0
    slot_seconds: float = 0.0
    peak: int = 0
    starts: int = 0

    @property
    def busy(self) -> float:
        """Share of the slots' time in which they were lent or being reset."""
        return (self.held + self.cleaned) / self.slot_seconds if self.slot_seconds else 0.0

    def wait_quantile(self, share: float) -> float:
        """Seconds that the share of leases waited at most."""
        waits = sorted(self.waits)
        return waits[min(len(waits) - 1, int(len(waits) * share))] if waits else 0.0


@dataclass(frozen=True)
class Outcome:
    """What a simulation came to.

    Attributes:
        seconds: from the first rollout's start to the last one's end.
        rate: rollouts a second, start-up and running out left aside where there are no steps.
        latency: mean seconds of a rollout.
        working: mean seconds of it that it didn't wait.
        events: that the scheduling core was told.
    """

    rollouts: int
    seconds: float
    rate: float
    latency: float
    working: float
    events: int
    pools: Mapping[str, PoolUse]

    def waiting(self, pool: str) -> float:
        """Mean seconds that a rollout waited for the pool."""
        return sum(self.pools[pool].waits) / self.rollouts
