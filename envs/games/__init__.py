"""Small games: guess a number, break a code, take the last match."""

from agentfly.envs.games.agent import GAMES, agent
from agentfly.envs.games.tasks import held_out_tasks, make_tasks

__all__ = ["GAMES", "agent", "held_out_tasks", "make_tasks"]
