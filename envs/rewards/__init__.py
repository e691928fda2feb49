"""Rewards that many environments need, each a function that makes one; combine them with `weighted`."""

from agentfly.envs.rewards.choice import multiple_choice
from agentfly.envs.rewards.combining import all_of, gated
from agentfly.envs.rewards.numbers import numeric
from agentfly.envs.rewards.shape import has_format, max_length
from agentfly.envs.rewards.symbolic import SYMBOLIC, symbolic
from agentfly.envs.rewards.text import exact, f1

__all__ = [
    "SYMBOLIC",
    "all_of",
    "exact",
    "f1",
    "gated",
    "has_format",
    "max_length",
    "multiple_choice",
    "numeric",
    "symbolic",
]
