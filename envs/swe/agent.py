"""An agent that mends a repository, and its reward."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly.envs.sandbox_tools import Workspace, sandbox_tools
from agentfly.envs.sandbox_tools.factory import ToolName
from agentfly.envs.swe.repositories import repository
from agentfly.envs.swe.reward import resolved

from agentfly.agent import Agent
from agentfly.resources.sandbox import SandboxSpec

SANDBOX = SandboxSpec(name="swe", slots=16, max_size=64, memory="1GiB", disk="64MiB", timeout=60, packages=True)
TOOLS: Sequence[ToolName] = (
    *("shell", "read_file", "edit_file", "write_file", "undo_edit", "grep", "list_files", "submit"),
)
SYSTEM = (
    "You mend a Python repository in your workspace. Find the cause of the problem that is told, change the code, "
    "check that it works, and submit. Tests that you don't see will be run on what you leave."
)


def make_agent(sandbox: SandboxSpec = SANDBOX, *, max_turns: int = 30) -> Agent:
    """An agent for tasks of this form.

    Args:
        sandbox: where it works; its Python needs pytest and what the repositories need.
        max_turns: completions at most.
    """
    workspace = Workspace(sandbox, repository)
    return Agent(
        tools=sandbox_tools(workspace, TOOLS),
        reward=resolved(workspace),
        system=SYSTEM,
        prompt="{problem_statement}",
        max_turns=max_turns,
    )


agent = make_agent()
