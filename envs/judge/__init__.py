"""A judge: a model that scores rollouts by a rubric."""

from agentfly.envs.judge.judge import judge
from agentfly.envs.judge.rubric import Criterion

__all__ = ["Criterion", "judge"]
