"""A pool's resource that plays one episode at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentfly.envs.episodes.game import Game, Step

from agentfly.errors import ConfigError
from agentfly.resources import Resource

_LONGEST_ACTION = 4000


@dataclass(frozen=True)
class Score:
    """How an episode stands.

    Attributes:
        total: of the rewards of its steps.
        steps: actions taken.
        over: nothing more can be done.
    """

    total: float
    steps: int
    over: bool


class Environment(Resource, ABC):
    """Opens an episode for each lease. A subclass says how; nothing of an episode outlives it.

    Args:
        max_steps: actions after which an episode is cut; None is no limit.
    """

    def __init__(self, max_steps: int | None = None) -> None:
        self._max_steps = max_steps
        self._game: Game | None = None
        self._score = Score(0.0, 0, False)

    @abstractmethod
    def open(self, row: Mapping[str, Any]) -> Game:
        """A new episode from the fields of a task."""

    async def setup(self, row: Mapping[str, Any]) -> None:
        """Open the lease's episode."""
        self._close()
        self._game = self.open(row)

    async def begin(self, row: Mapping[str, Any]) -> str:
        """Open another episode within the lease, and see what there is to see."""
        await self.setup(row)
        return await self.observe()

    async def observe(self) -> str:
        """What there is to see."""
        return self._playing().observe()

    async def step(self, action: str) -> Step:
        """Act; once the episode is over, nothing changes any more."""
        if self._score.over:
            return Step("The episode is over.", terminated=True)
        step = self._playing().step(str(action)[:_LONGEST_ACTION])
        steps = self._score.steps + 1
        if not step.terminated and self._max_steps is not None and steps >= self._max_steps:
            step = replace(step, truncated=True)
        self._score = Score(self._score.total + step.reward, steps, step.over)
        return step

    async def score(self) -> Score:
        """How the episode stands."""
        return self._score

    async def reset(self) -> None:
        """Drop the episode."""
        self._close()

    async def stop(self) -> None:
        """Drop the episode."""
        self._close()

    def _playing(self) -> Game:
        if self._game is None:
            raise ConfigError(f"{type(self).__name__} has no episode: acquire it with setup={{'row': ...}}")
        return self._game

    def _close(self) -> None:
        game, self._game = self._game, None
        self._score = Score(0.0, 0, False)
        if game is not None:
            game.close()
