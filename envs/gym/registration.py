"""Names for `gymnasium.make`: importing this module registers them.

`gymnasium.make("agentfly.envs.gym.registration:agentfly/Tools-v0", ...)` imports it by itself.
"""

from __future__ import annotations

from typing import Any

from agentfly.envs.catalogue import CATALOGUE
from gymnasium.envs.registration import register, registry

_ENTRY = "agentfly.envs.gym.tool_env:ToolEnv"
_VECTOR = "agentfly.envs.gym.vector_env:ToolVectorEnv"


def _register_all() -> None:
    """`agentfly/Tools-v0`, whose tools are given, and one for each environment that comes with tasks."""
    known: dict[str, dict[str, Any]] = {"agentfly/Tools-v0": {}} | {
        f"agentfly/{each.gym_name}-v0": {"agent_or_tools": each.agent, "tasks": each.tasks}
        for each in CATALOGUE
        if each.agent is not None and each.tasks is not None
    }
    for name, kwargs in known.items():
        if name not in registry:
            register(id=name, entry_point=_ENTRY, vector_entry_point=_VECTOR, kwargs=kwargs, order_enforce=True)


_register_all()
