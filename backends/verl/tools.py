"""verl's tools as AgentFly's: `BaseTool` classes, `@function_tool` functions, and the files that name them.

They run unchanged; each call has an instance of its own, created and released around it, as in verl's `tool_agent`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from verl.experimental.agent_loop.tool_agent_loop import AgentData
from verl.tools.function_tool import FunctionTool, normalize_function_tool_return
from verl.tools.tool_registry import load_all_tools

from agentfly.agent import Tool, ToolResult
from agentfly.agent.foreign import foreign_tool
from agentfly.context import Context
from agentfly.errors import ConfigError, ToolError

_TOOL_REWARD = "tool_reward"


def load_tools(
    tools_config: str | Path | None = None, function_tools: str | Path | None = None, *, max_output: int = 8192
) -> list[Tool]:
    """The tools of verl's files.

    Args:
        tools_config: a YAML file as `rollout.multi_turn.tool_config_path` names it.
        function_tools: a Python file as `rollout.multi_turn.function_tool_path` names it.
        max_output: characters of an observation.

    Raises:
        ConfigError: a file isn't there, or what it names can't be loaded.
    """
    files = [None if file is None else str(file) for file in (tools_config, function_tools)]
    try:
        found = load_all_tools(*files)
    except Exception as error:  # it runs the user's code
        named = " and ".join(filter(None, files))
        raise ConfigError(f"verl's tools of {named} can't be loaded: {type(error).__name__}: {error}") from error
    return convert(found, max_output=max_output)


def convert(tools: Sequence[Any], *, max_output: int = 8192) -> list[Tool]:
    """Tools that verl has loaded.

    Args:
        tools: `BaseTool`s and `FunctionTool`s.
        max_output: characters of an observation.
    """
    rollouts: WeakKeyDictionary[Context, Any] = WeakKeyDictionary()
    return [_convert(tool, rollouts, max_output) for tool in tools]


def _convert(tool: Any, rollouts: WeakKeyDictionary[Context, Any], max_output: int) -> Tool:
    schema = tool.tool_schema.function.model_dump(exclude_unset=True, exclude_none=True)
    is_function = isinstance(tool, FunctionTool)

    async def call_base(arguments: dict[str, Any], ctx: Context) -> ToolResult:
        instance, _ = await tool.create(create_kwargs=_create_arguments(ctx, tool.name))
        try:
            answer = await tool.execute(instance, arguments, agent_data=_agent_data(ctx, rollouts))
        finally:
            await tool.release(instance)
        return _result(answer, ctx)

    async def call_async(arguments: dict[str, Any], ctx: Context) -> ToolResult:
        return _result(normalize_function_tool_return(await tool.fn(**arguments)), ctx)

    def call_sync(arguments: dict[str, Any], ctx: Context) -> ToolResult:
        return _result(normalize_function_tool_return(tool.fn(**arguments)), ctx)

    threaded = is_function and not tool.is_async
    return foreign_tool(
        call_sync if threaded else call_async if is_function else call_base,
        name=tool.name,
        description=schema.get("description", ""),
        schema=schema.get("parameters", {"type": "object", "properties": {}}),
        threaded=threaded,
        max_output=max_output,
    )


def _create_arguments(ctx: Context, name: str) -> Mapping[str, Any]:
    of_tools = ctx.task.fields.get("tools_kwargs") or {}
    return dict((of_tools.get(name) or {}).get("create_kwargs") or {})


def _agent_data(ctx: Context, rollouts: WeakKeyDictionary[Context, Any]) -> Any:
    """What verl gives to a tool of the rollout around it: the same object for all calls of a rollout."""
    if ctx not in rollouts:
        rollouts[ctx] = AgentData(
            messages=list(ctx.task.fields.get("prompt") or ()),
            image_data=None,
            video_data=None,
            audio_data=None,
            mm_processor_kwargs=None,
            metrics={},
            request_id=ctx.rollout_id,
            tools_kwargs=ctx.task.fields.get("tools_kwargs") or {},
        )
    return rollouts[ctx]


def _result(answer: tuple[Any, Any, Any], ctx: Context) -> ToolResult:
    response, reward, metrics = answer
    if response.image or response.video:
        raise ToolError("the tool answered with an image or a video, and only text can be shown")
    numbers = {name: value for name, value in (metrics or {}).items() if isinstance(value, (int, float))}
    if reward:
        numbers[_TOOL_REWARD] = ctx.metrics.get(_TOOL_REWARD, 0.0) + float(reward)
    return ToolResult(response.text or "", metrics=numbers)
