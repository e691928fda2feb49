"""A reward whose fields of the task are named when it is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from agentfly.agent import Reward, RewardResult

if TYPE_CHECKING:
    from agentfly.context import Context


class NeedsFields(Reward):
    """A reward that reads fields beside those that its function asks for.

    Args:
        inner: what scores.
        fields: that a task must have.
    """

    def __init__(self, inner: Reward, fields: Sequence[str]) -> None:
        self.name = inner.name
        self._inner = inner
        self._fields = tuple(fields)

    def missing(self, fields: Iterable[str]) -> list[str]:
        there = set(fields)
        return [*self._inner.missing(there), *(name for name in self._fields if name not in there)]

    async def __call__(self, *, final_response: str, trajectory: object, ctx: Context) -> RewardResult:
        return await self._inner(final_response=final_response, trajectory=trajectory, ctx=ctx)
