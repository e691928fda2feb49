"""Tools that come with sandboxes, and rewards that run what a rollout left in its own."""

from agentfly.envs.sandbox_tools.factory import TOOL_NAMES, ToolName, sandbox_tools
from agentfly.envs.sandbox_tools.policy import ShellPolicy
from agentfly.envs.sandbox_tools.rewards import hidden_tests_reward, stdio_reward
from agentfly.envs.sandbox_tools.workspace import Workspace

__all__ = [
    "TOOL_NAMES",
    "ShellPolicy",
    "ToolName",
    "Workspace",
    "hidden_tests_reward",
    "sandbox_tools",
    "stdio_reward",
]
