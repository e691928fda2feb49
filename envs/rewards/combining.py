"""Rewards made of rewards, beside the weighted sum."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from agentfly.agent import Reward, RewardResult
from agentfly.errors import ConfigError

if TYPE_CHECKING:
    from agentfly.context import Context


def all_of(*parts: Reward, name: str = "all_of") -> Reward:
    """The product of rewards: of those that are 0 or 1, whether all are 1."""
    return _Product(parts, name)


def gated(gate: Reward, reward: Reward, *, name: str = "gated") -> Reward:
    """A reward that counts only where the gate gives more than 0, and that is not computed elsewhere."""
    return _Gated(gate, reward, name)


class _Product(Reward):
    def __init__(self, parts: Sequence[Reward], name: str) -> None:
        self.name = name
        self._parts = _checked(name, parts)

    def missing(self, fields: Iterable[str]) -> list[str]:
        there = tuple(fields)
        return [field for part in self._parts for field in part.missing(there)]

    async def __call__(self, *, final_response: str, trajectory: object, ctx: Context) -> RewardResult:
        calls = [part(final_response=final_response, trajectory=trajectory, ctx=ctx) for part in self._parts]
        results = await asyncio.gather(*calls)
        metrics: dict[str, float] = {}
        for part, result in zip(self._parts, results, strict=True):
            metrics.update({**result.metrics, part.name: result.value})
        return RewardResult(math.prod(result.value for result in results), metrics)


class _Gated(Reward):
    def __init__(self, gate: Reward, reward: Reward, name: str) -> None:
        self.name = name
        self._gate, self._reward = _checked(name, (gate, reward))

    def missing(self, fields: Iterable[str]) -> list[str]:
        there = tuple(fields)
        return [*self._gate.missing(there), *self._reward.missing(there)]

    async def __call__(self, *, final_response: str, trajectory: object, ctx: Context) -> RewardResult:
        gate = await self._gate(final_response=final_response, trajectory=trajectory, ctx=ctx)
        metrics = {**gate.metrics, self._gate.name: gate.value}
        if gate.value <= 0:
            return RewardResult(0.0, metrics)
        inner = await self._reward(final_response=final_response, trajectory=trajectory, ctx=ctx)
        return RewardResult(inner.value, {**metrics, **inner.metrics, self._reward.name: inner.value})


def _checked(name: str, parts: Sequence[Reward]) -> tuple[Reward, ...]:
    for part in parts:
        if not isinstance(part, Reward):
            raise ConfigError(f"reward {name!r}: {part!r:.80} is no reward; decorate it with @reward")
    names = [part.name for part in parts]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"reward {name!r} needs parts with names of their own, got {names}; set name=")
    return tuple(parts)
