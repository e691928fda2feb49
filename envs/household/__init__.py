"""A household in words: find things, clean, heat or cool them, put them where they belong."""

from agentfly.envs.household.agent import HOUSEHOLD, agent
from agentfly.envs.household.tasks import held_out_tasks, make_tasks

__all__ = ["HOUSEHOLD", "agent", "held_out_tasks", "make_tasks"]
