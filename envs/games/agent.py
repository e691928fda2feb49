"""An agent that plays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentfly.envs.episodes import EpisodeHandle, Game, GameEnvironment
from agentfly.envs.games.tasks import open_game

from agentfly.agent import Agent
from agentfly.resources.environment import EnvironmentSpec


class Table(GameEnvironment):
    """A table for one game at a time."""

    def open(self, row: Mapping[str, Any]) -> Game:
        return open_game(row)


GAMES = EnvironmentSpec(Table, max_steps=30, name="games", slots=512, max_size=8192)
_EPISODE = EpisodeHandle(GAMES, ["game", "seed"])

agent = Agent(
    tools=[_EPISODE.tool("play", "Make a move.", argument="move", meaning="as the game asks for it")],
    reward=_EPISODE.episode_return(name="won"),
    system="You play a game and want to win.",
    max_turns=20,
    max_invalid_calls=3,
)
