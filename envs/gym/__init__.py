"""Gymnasium both ways: agents' tools as a `gymnasium.Env`, and any `gymnasium.Env` as a resource.

What needs gymnasium in this process is imported when it is asked for: a pool's hosts may have it while the driver
hasn't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentfly.envs.gym.agents import gym_agent, gym_tasks
from agentfly.envs.gym.presets import PRESETS
from agentfly.envs.gym.resource import GymEnvironment, gym_resource

if TYPE_CHECKING:
    from agentfly.envs.gym.tool_env import ToolEnv
    from agentfly.envs.gym.vector_env import ToolVectorEnv

_LAZY = {"ToolEnv": "tool_env", "ToolVectorEnv": "vector_env"}

__all__ = ["PRESETS", "GymEnvironment", "ToolEnv", "ToolVectorEnv", "gym_agent", "gym_resource", "gym_tasks"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
