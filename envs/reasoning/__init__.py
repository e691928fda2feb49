"""The generators of reasoning-gym: tasks without end, each scored by its own rule."""

from agentfly.envs.reasoning.agents import reasoning_agent, reasoning_tasks
from agentfly.envs.reasoning.judge import ReasoningJudge, reasoning_judge

__all__ = ["ReasoningJudge", "reasoning_agent", "reasoning_judge", "reasoning_tasks"]
