"""Tools of an MCP server as an agent's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from agentfly.envs.mcp.resource import McpServer

from agentfly.agent import Tool, ToolResult
from agentfly.agent.foreign import foreign_tool
from agentfly.context import Context
from agentfly.errors import ConfigError
from agentfly.resources import ResourceSpec


def list_mcp_tools(spec: ResourceSpec[McpServer]) -> list[dict[str, Any]]:
    """Ask a server, started here for the moment, for its tools: `name`, `description`, `schema`.

    Raises:
        ConfigError: it can't be used here.
    """
    return asyncio.run(_ask(spec))


def mcp_tools(
    spec: ResourceSpec[McpServer],
    *,
    only: Sequence[str] | None = None,
    listed: Sequence[Mapping[str, Any]] | None = None,
    max_output: int = 8192,
) -> list[Tool]:
    """The server's tools. A rollout has a session of its own, from its first call on.

    Args:
        spec: made by `mcp_resource`.
        only: names of those wanted.
        listed: what `list_mcp_tools` gave, where the server can't be started here.
        max_output: characters of an observation.

    Raises:
        ConfigError: the server can't be used here, or hasn't a tool of such a name.
    """
    there = {str(tool["name"]): tool for tool in (list_mcp_tools(spec) if listed is None else listed)}
    for name in only or ():
        if name not in there:
            raise ConfigError(f"MCP server {spec.name!r} has no tool {name!r}; it has: {', '.join(there) or 'none'}")
    return [_tool(spec, there[name], max_output) for name in (there if only is None else only)]


def _tool(spec: ResourceSpec[McpServer], told: Mapping[str, Any], max_output: int) -> Tool:
    name = str(told["name"])

    async def call(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
        answer = await (await ctx.acquire(spec)).call(name, arguments)
        return ToolResult(answer.text, is_error=answer.is_error)

    return foreign_tool(
        call,
        name=name,
        description=str(told["description"]),
        schema=told["schema"],
        threaded=False,
        timeout=spec.args["timeout"],
        max_output=max_output,
        claims=[spec],
    )


async def _ask(spec: ResourceSpec[McpServer]) -> list[dict[str, Any]]:
    server = spec.make()
    assert isinstance(server, McpServer)
    await server.start()
    try:
        return await server.tools()
    finally:
        await server.stop()
