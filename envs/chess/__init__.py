"""Chess: find the mate. Needs the package `chess`, which is under the GPL, where the hosts run."""

from agentfly.envs.chess.agent import CHESS, agent
from agentfly.envs.chess.tasks import held_out_tasks, make_tasks

__all__ = ["CHESS", "agent", "held_out_tasks", "make_tasks"]
