"""How many rollouts may be under way, by what the pools that their tools claim can serve. Pure: no Ray, no clock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

_LEAD = 1.25
_SPARE = 1.0


@dataclass(frozen=True)
class PoolView:
    """A pool at one moment.

    Attributes:
        leased: slots in use.
        ready: slots that there are, those in use included.
        waiting: requests in its queue.
        max_size: slots that it may grow to.
    """

    leased: int
    ready: int
    waiting: int
    max_size: int


class Share:
    """The share of its life, queueing aside, in which a rollout holds a slot of one pool.

    It is the slots in use over the rollouts that don't queue, both summed over time; what is long past, counted in
    ends of rollouts, fades. A rollout is taken to hold a slot all its life until as many have ended as the pool has
    slots: those that are young all at once would mislead.

    Args:
        capacity: slots of the pool, as far as is known at the start.
    """

    def __init__(self, capacity: int) -> None:
        self._unproven = capacity
        self._held = 0.0
        self._worked = 0.0

    @property
    def value(self) -> float:
        """From 0 to 1."""
        return min(1.0, self._held / self._worked) if self._worked else 1.0

    def observe(self, working: int, leased: int, seconds: float) -> None:
        """So many rollouts didn't queue for a while, and so many slots were in use."""
        self._worked += working * seconds
        self._held += (working if self._unproven > 0 else min(working, leased)) * seconds

    def ended(self, rollouts: int, under_way: int) -> None:
        """Rollouts have ended."""
        self._unproven -= rollouts
        fade = math.exp(-rollouts / max(1, under_way))
        self._held *= fade
        self._worked *= fade


class Admission:
    """Lets a rollout begin when, by the time it asks for what it claims, a slot is likely to be there.

    A pool of `n` slots is kept busy by `n / share` rollouts (Little's law); so many are let in, and a quarter more
    for the ups and downs. Whoever begins beyond that would spend tokens and then wait. While nobody queues in a pool
    it counts as large as it may become, else as it is. One rollout may always be under way.

    Args:
        claims: keys of the pools that a rollout may claim, and how many slots each may have.
    """

    def __init__(self, claims: Mapping[str, int]) -> None:
        self._capacity = dict(claims)
        self._shares = {key: Share(slots) for key, slots in claims.items()}
        self._seen_at: float | None = None

    @property
    def needed(self) -> bool:
        """Whether anything is claimed; otherwise all are let in."""
        return bool(self._shares)

    @property
    def limit(self) -> float:
        """Rollouts that may be under way; infinite when no pool holds them up."""
        limits = [self._limit_of(key) for key in self._shares]
        return max(1.0, min(limits, default=math.inf))

    def room(self, under_way: int) -> int | None:
        """How many more may begin; None is any number."""
        limit = self.limit
        return None if math.isinf(limit) else max(0, math.floor(limit) - under_way)

    def observe(self, under_way: int, pools: Mapping[str, PoolView], now: float) -> None:
        """The pools as they are; those that nobody has asked for yet aren't there."""
        seconds = 0.0 if self._seen_at is None else now - self._seen_at
        self._seen_at = now
        for key, share in self._shares.items():
            view = pools.get(key)
            if view is None:
                share.observe(under_way, 0, seconds)
                continue
            share.observe(max(0, under_way - view.waiting), view.leased, seconds)
            self._capacity[key] = view.ready if view.waiting else view.max_size

    def ended(self, rollouts: int, under_way: int) -> None:
        """Rollouts have ended; so many were under way before."""
        for share in self._shares.values():
            share.ended(rollouts, under_way)

    def _limit_of(self, key: str) -> float:
        share, capacity = self._shares[key].value, self._capacity[key]
        return math.inf if share == 0.0 else capacity / share * _LEAD + _SPARE
