"""ScienceWorld: thirty kinds of experiments in its real simulator, which needs Java."""

from agentfly.envs.scienceworld.agents import scienceworld_agent, scienceworld_tasks
from agentfly.envs.scienceworld.resource import ScienceWorld, scienceworld_resource

__all__ = ["ScienceWorld", "scienceworld_agent", "scienceworld_resource", "scienceworld_tasks"]
