"""An agent that plays chess."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentfly.envs.chess.game import Chess, open_game
from agentfly.envs.episodes import EpisodeHandle, GameEnvironment

from agentfly.agent import Agent
from agentfly.resources.environment import EnvironmentSpec


class ChessBoard(GameEnvironment):
    """A board for one game at a time."""

    def open(self, row: Mapping[str, Any]) -> Chess:
        return open_game(row)


CHESS = EnvironmentSpec(ChessBoard, max_steps=40, name="chess", slots=256, max_size=4096)
_EPISODE = EpisodeHandle(CHESS, ["fen", "seed"])

agent = Agent(
    tools=[_EPISODE.tool("move", "Make a move.", argument="move", meaning="in UCI or SAN, such as e2e4 or Nf3")],
    reward=_EPISODE.episode_return(name="won"),
    system="You play chess.",
    max_turns=20,
    max_invalid_calls=3,
)
