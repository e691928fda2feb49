"""Files with products in a sandbox: a small task that takes two tools and three turns."""

from agentfly.envs.file_math.agent import agent
from agentfly.envs.file_math.tasks import make_tasks
from agentfly.envs.file_math.traces import made_trace

__all__ = ["agent", "made_trace", "make_tasks"]
