"""An environment that plays games."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from agentfly.envs.episodes.game import Game, Step

from agentfly.errors import ConfigError
from agentfly.resources.environment import Environment

_LONGEST_ACTION = 4000


class GameEnvironment(Environment[str, str]):
    """Opens a `Game` for each episode; a subclass says how. Nothing of a game outlives its episode."""

    def __init__(self) -> None:
        self._game: Game | None = None

    @abstractmethod
    def open(self, row: Mapping[str, Any]) -> Game:
        """A new game from the fields of a task."""

    async def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> str:
        """Open a game.

        Args:
            seed: of those whose row has none.
            options: the task's fields.
        """
        await self.end()
        row = dict(options or {})
        if seed is not None:
            row.setdefault("seed", seed)
        self._game = self.open(row)
        return self._game.observe()

    async def observe(self) -> str:
        """What there is to see."""
        return self._playing().observe()

    async def step(self, action: str) -> Step:
        """Act; very long actions are cut."""
        return self._playing().step(str(action)[:_LONGEST_ACTION])

    async def end(self) -> None:
        """Close the game."""
        game, self._game = self._game, None
        if game is not None:
            game.close()

    def _playing(self) -> Game:
        if self._game is None:
            raise ConfigError(f"{type(self).__name__} has no episode: acquire it with setup={{'options': ...}}")
        return self._game
