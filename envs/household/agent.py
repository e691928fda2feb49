"""An agent that keeps house."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentfly.envs.episodes import EpisodeHandle, GameEnvironment
from agentfly.envs.household.game import Household
from agentfly.envs.household.tasks import open_house

from agentfly.agent import Agent
from agentfly.resources.environment import EnvironmentSpec

SYSTEM = "You act in a house, one command at a time, until the task is done."


class House(GameEnvironment):
    """A house for one episode at a time."""

    def open(self, row: Mapping[str, Any]) -> Household:
        return open_house(row)


HOUSEHOLD = EnvironmentSpec(House, max_steps=50, name="household", slots=256, max_size=4096)
_EPISODE = EpisodeHandle(HOUSEHOLD, ["house", "task", "thing", "target"])

agent = Agent(
    tools=[_EPISODE.tool("act", "Do something.", argument="command", meaning="such as: go to cabinet 1")],
    reward=_EPISODE.episode_return(name="done"),
    system=SYSTEM,
    max_turns=50,
    max_invalid_calls=3,
)
