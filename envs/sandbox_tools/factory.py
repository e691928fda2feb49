"""Makes an agent's tools from the toolbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from agentfly.envs.sandbox_tools.policy import ShellPolicy
from agentfly.envs.sandbox_tools.tools import Toolbox
from agentfly.envs.sandbox_tools.workspace import Workspace

from agentfly.agent import Tool, tool
from agentfly.errors import ConfigError
from agentfly.resources.sandbox import SandboxSpec

ToolName = Literal[
    "python", "shell", "read_file", "write_file", "edit_file", "undo_edit", "grep", "list_files", "submit"
]
TOOL_NAMES: tuple[ToolName, ...] = get_args(ToolName)
_GRACE = 30.0


def sandbox_tools(
    where: SandboxSpec | Workspace,
    names: Sequence[ToolName] = TOOL_NAMES,
    *,
    policy: ShellPolicy | None = None,
    max_output: int = 8192,
) -> list[Tool]:
    """Tools that work in one sandbox, which the rollout leases at the first call.

    The task's field `files`, if it has one, is written into it first.

    Args:
        where: the sandboxes, or a `Workspace`, which says what lies in them at the beginning.
        names: which tools.
        policy: of the shell; None runs every command.
        max_output: characters of an observation.

    Raises:
        ConfigError: there is no such tool.
    """
    workspace = where if isinstance(where, Workspace) else Workspace(where)
    box = Toolbox(workspace, policy or ShellPolicy(), max_output)
    unknown = [name for name in names if name not in TOOL_NAMES]
    if unknown:
        raise ConfigError(f"there is no sandbox tool {unknown[0]!r}; there are: {', '.join(TOOL_NAMES)}")
    methods: Mapping[str, Callable[..., Any]] = {name: getattr(box, name) for name in names}
    made = tool(timeout=workspace.spec.timeout + _GRACE, max_output=max_output, claims=[workspace.spec])
    last = tool(terminal=True, max_output=max_output)
    return [last(method) if name == "submit" else made(method) for name, method in methods.items()]
