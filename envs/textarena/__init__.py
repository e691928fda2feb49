"""Games of TextArena, alone or against an opponent."""

from agentfly.envs.textarena.agents import textarena_agent, textarena_tasks
from agentfly.envs.textarena.resource import SINGLE_PLAYER, TWO_PLAYERS, TextArenaEnvironment, textarena_resource

__all__ = [
    "SINGLE_PLAYER",
    "TWO_PLAYERS",
    "TextArenaEnvironment",
    "textarena_agent",
    "textarena_resource",
    "textarena_tasks",
]
