"""An MCP server in a pool: a process that is spoken to over its pipes, or an address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agentfly.errors import ConfigError
from agentfly.resources import Resource, ResourceSpec


@dataclass(frozen=True)
class Answer:
    """What a tool of the server gave back.

    Attributes:
        text: its text parts; of other parts only their kind.
        is_error: the server says that the call failed.
    """

    text: str
    is_error: bool


class McpServer(Resource):
    """A session with an MCP server.

    Args:
        command: program and arguments of a server on stdio; one process for each slot.
        url: of a server on streamable HTTP, in place of a command.
        env: variables of the process, beside the few that MCP passes on.
        timeout: seconds for the start and for a call.
        keep: leave the session as it is between two leases; else it is started anew, so that nothing stays behind.
    """

    def __init__(
        self,
        command: Sequence[str] = (),
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        keep: bool = False,
    ) -> None:
        self._command = tuple(command)
        self._url = url
        self._env = dict(env or {})
        self._timeout = timeout
        self._keep = keep
        self._used = False
        self._session: Any = None
        self._life: asyncio.Task[None] | None = None
        self._end = asyncio.Event()

    async def start(self) -> None:
        """Open the session.

        Raises:
            ConfigError: mcp isn't installed, or the server doesn't answer.
        """
        self._end = asyncio.Event()
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # The session's scopes must be left by the task that entered them.
        self._life = asyncio.create_task(self._live(opened), name="mcp session")
        await asyncio.wait({opened, self._life}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        if not opened.done() or opened.exception() is not None:
            reason = opened.exception() if opened.done() else f"no answer within {self._timeout:g} s"
            await self.stop()
            raise ConfigError(f"MCP server {self._url or ' '.join(self._command)!r} can't be used: {reason}")
        self._session = opened.result()

    async def tools(self) -> list[dict[str, Any]]:
        """Name, description and JSON schema of each tool."""
        listed = await self._session.list_tools()
        return [
            {"name": tool.name, "description": tool.description or "", "schema": dict(tool.input_schema)}
            for tool in listed.tools
        ]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Call a tool; what the server refuses is an answer too."""
        from mcp import MCPError

        self._used = True
        try:
            result = await self._session.call_tool(name, dict(arguments), read_timeout_seconds=self._timeout)
        except MCPError as error:
            return Answer(str(error), is_error=True)
        parts = [getattr(part, "text", f"({part.type})") for part in result.content]
        return Answer("\n".join(parts), bool(result.is_error))

    async def reset(self) -> None:
        """Start the session anew, unless it is kept or wasn't used."""
        if self._used and not self._keep:
            await self.stop()
            await self.start()
        self._used = False

    async def healthy(self) -> bool:
        """Whether the session is alive."""
        return self._life is not None and not self._life.done()

    async def stop(self) -> None:
        """End the session, and the process."""
        self._end.set()
        life, self._life, self._session = self._life, None, None
        if life is not None:
            done, _ = await asyncio.wait({life}, timeout=10.0)
            if not done:
                life.cancel()
                await asyncio.wait({life})

    async def _live(self, opened: asyncio.Future[Any]) -> None:
        try:
            async with _session(self._command, self._url, self._env) as session:
                await session.initialize()
                opened.set_result(session)
                await self._end.wait()
        except Exception as error:  # transports raise groups of whatever
            if not opened.done():
                opened.set_exception(RuntimeError(_first(error)))


@asynccontextmanager
async def _session(command: Sequence[str], url: str | None, env: Mapping[str, str]) -> AsyncIterator[Any]:
    try:
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import get_default_environment, stdio_client
        from mcp.client.streamable_http import streamable_http_client
    except ImportError as error:
        raise RuntimeError(f"{error}; pip install agentfly-rl[mcp]") from error
    if url is not None:
        transport: Any = streamable_http_client(url)
    else:
        server = StdioServerParameters(
            command=command[0], args=list(command[1:]), env={**get_default_environment(), **env}
        )
        transport = stdio_client(server)
    async with transport as streams, ClientSession(streams[0], streams[1]) as session:
        yield session


def mcp_resource(
    *,
    command: Sequence[str] = (),
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    keep: bool = False,
    name: str = "mcp",
    slots: int = 16,
    max_size: int = 64,
    runtime_env: Mapping[str, Any] | None = None,
) -> ResourceSpec[McpServer]:
    """A pool of sessions with an MCP server.

    Args:
        command, url, env, timeout, keep: see `McpServer`.
        name: of the pool.
        slots: sessions that one host process carries.
        max_size: sessions at most.
        runtime_env: of the hosts: packages that only they need.

    Raises:
        ConfigError: not exactly one of command and url.
    """
    if bool(command) == (url is not None):
        raise ConfigError(f"MCP server {name!r}: give either command or url")
    args = {"command": tuple(command), "url": url, "env": dict(env or {}), "timeout": timeout, "keep": keep}
    return ResourceSpec(
        McpServer,
        args=args,
        name=name,
        slots=slots,
        max_size=max_size,
        start_timeout=timeout + 30.0,
        reset_timeout=timeout + 30.0,
        runtime_env=dict(runtime_env or {}),
    )


def _first(error: BaseException) -> str:
    """The first real error in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
