from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio
from agentfly.envs.gym import ToolEnv
from agentfly.envs.mcp import McpServer, mcp_resource, mcp_tools

from agentfly.agent import Agent
from agentfly.errors import ConfigError

SERVER = str(Path(__file__).parent / "mcp_server.py")
NOTES = mcp_resource(command=(sys.executable, SERVER))


@pytest_asyncio.fixture
async def server() -> AsyncIterator[McpServer]:
    made = NOTES.make()
    assert isinstance(made, McpServer)
    await made.start()
    yield made
    await made.stop()


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


async def test_a_server_on_stdio(server: McpServer) -> None:
    assert [tool["name"] for tool in await server.tools()] == ["add", "note", "fail"]
    assert (await server.call("add", {"left": 2, "right": 3})).text == "5"
    for name, arguments in (("fail", {}), ("add", {"left": "x"}), ("nothing", {})):
        answer = await server.call(name, arguments)
        assert answer.is_error and answer.text
    assert await server.healthy()


async def test_nothing_is_left_for_the_next_lease(server: McpServer) -> None:
    assert (await server.call("note", {"text": "a"})).text == "a"
    await server.reset()
    assert (await server.call("note", {"text": "b"})).text == "b"


def test_its_tools_are_an_agents() -> None:
    agent = Agent(tools=mcp_tools(NOTES, only=["note", "add"]), max_turns=5)
    assert [tool.name for tool in agent.tools] == ["note", "add"]
    assert agent.tools[1].parameters["properties"].keys() == {"left", "right"}
    with closing(ToolEnv(agent, [{"prompt": "go"}])) as env:
        for _ in range(2):
            env.reset(seed=0)
            assert env.step(call("note", text="x"))[0] == "x"
            assert env.step(call("note", text="y"))[0] == "x y"
    with pytest.raises(ConfigError, match="no tool 'write'; it has: add, note, fail"):
        mcp_tools(NOTES, only=["write"])


async def test_a_server_on_http() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, SERVER, str(port), stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stderr is not None
        while b"running on" not in await asyncio.wait_for(process.stderr.readline(), 60):
            pass
        server = mcp_resource(url=f"http://127.0.0.1:{port}/mcp", keep=True).make()
        assert isinstance(server, McpServer)
        await server.start()
        assert (await server.call("add", {"left": 20, "right": 3})).text == "23"
        await server.stop()
    finally:
        process.kill()
        await process.wait()


async def test_a_server_that_is_not_there_is_an_error_in_one_line() -> None:
    server = mcp_resource(command=(sys.executable, "-c", "raise SystemExit(3)")).make()
    with pytest.raises(ConfigError, match="can't be used"):
        await server.start()
    with pytest.raises(ConfigError, match="either command or url"):
        mcp_resource()
