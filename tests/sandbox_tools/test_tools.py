"""The tools that come with sandboxes, as a model calls them."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from agentfly.envs.sandbox_tools import TOOL_NAMES, ShellPolicy, Workspace, sandbox_tools
from ray import cloudpickle
from sandbox_tools.boxed import SPEC, boxed

from agentfly.agent import Agent, ToolResult
from agentfly.context import Context, Task
from agentfly.errors import ConfigError

FILES = {"a.py": "def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x + 1\n", "sub/b.txt": "one\ntwo\n"}
TOOLS = {tool.name: tool for tool in sandbox_tools(SPEC)}


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with boxed({"files": FILES}) as context:
        yield context


async def use(ctx: Context, name: str, **arguments: Any) -> str:
    result = await TOOLS[name].call(arguments, ctx)
    assert not result.is_error, result.content
    return result.content


async def fail(ctx: Context, name: str, **arguments: Any) -> str:
    result = await TOOLS[name].call(arguments, ctx)
    assert result.is_error, result.content
    return result.content


def test_tools_show_the_model_their_arguments_alone_and_name_their_claims() -> None:
    assert tuple(TOOLS) == TOOL_NAMES
    assert list(TOOLS["edit_file"].parameters["properties"]) == ["path", "old", "new", "replace_all"]
    assert all(tool.claims == (SPEC,) for name, tool in TOOLS.items() if name != "submit")
    assert all(tool.description and tool.parameters["type"] == "object" for tool in TOOLS.values())
    agent = Agent(tools=sandbox_tools(SPEC, ["python", "submit"]), prompt="x")
    assert [tool.name for tool in agent.tools] == ["python", "submit"]
    with pytest.raises(ConfigError, match="no sandbox tool 'rm'; there are: python, shell"):
        sandbox_tools(SPEC, ["rm"])  # type: ignore[list-item]


async def test_tools_travel(ctx: Context) -> None:
    for tool in pickle.loads(cloudpickle.dumps(list(TOOLS.values()))):
        assert tool.spec == TOOLS[tool.name].spec
        assert [claim.key for claim in tool.claims] == [claim.key for claim in TOOLS[tool.name].claims]
    (sent,) = [tool for tool in pickle.loads(cloudpickle.dumps(list(TOOLS.values()))) if tool.name == "read_file"]
    assert (await sent.call({"path": "sub/b.txt"}, ctx)).content == "     1\tone\n     2\ttwo"


async def test_python_and_the_shell_share_a_workspace(ctx: Context) -> None:
    assert await use(ctx, "python", code="import a\na.f(1)") == "2"
    assert await use(ctx, "python", code="a.g(2)") == "3"
    assert "ZeroDivisionError" in await fail(ctx, "python", code="1/0")
    assert await use(ctx, "shell", command="cat sub/b.txt") == "one\ntwo"
    assert await fail(ctx, "shell", command="echo no; exit 3") == "no\n[exit code 3]"
    assert await use(ctx, "shell", command="true") == "(no output)"


async def test_files_are_read_in_pages_and_say_where_they_go_on(ctx: Context) -> None:
    await use(ctx, "python", code="open('long', 'w').write(''.join(f'line {n}\\n' for n in range(1, 5001)))")
    page = await use(ctx, "read_file", path="long")
    assert page.startswith("     1\tline 1\n     2\tline 2\n")
    assert len(page) <= 8192
    last = page.splitlines()[-1]
    start = int(last.rpartition("=")[2].rstrip("]"))
    assert last == f"[lines 1 to {start - 1} of 5000; read on with start={start}]"
    assert (await use(ctx, "read_file", path="long", start=start)).startswith(f"{start:6}\tline {start}\n")
    assert await use(ctx, "read_file", path="long", start=4999) == "  4999\tline 4999\n  5000\tline 5000"
    assert await use(ctx, "read_file", path="long", start=3, lines=1) == (
        "     3\tline 3\n[lines 3 to 3 of 5000; read on with start=4]"
    )
    assert "no line 6000" in await fail(ctx, "read_file", path="long", start=6000)


async def test_one_endless_line_is_cut_and_says_so(ctx: Context) -> None:
    await use(ctx, "python", code="open('wide', 'w').write('x' * 100_000)")
    assert "characters cut" in await use(ctx, "read_file", path="wide")


@pytest.mark.parametrize(
    ("path", "told"),
    [("none", "there is no file none"), ("sub", "sub: "), ("/etc/passwd", "outside the workspace"), ("bin", "no text")],
)
async def test_what_can_not_be_read_is_told(ctx: Context, path: str, told: str) -> None:
    await use(ctx, "python", code="open('bin', 'wb').write(bytes([255, 0]))")
    assert told in await fail(ctx, "read_file", path=path)


async def test_files_are_written_and_changes_taken_back(ctx: Context) -> None:
    assert await use(ctx, "write_file", path="new/c.txt", content="1\n2") == "made new/c.txt, 2 lines"
    assert await use(ctx, "write_file", path="new/c.txt", content="3\n") == "wrote new/c.txt, 1 lines"
    edited = await use(ctx, "edit_file", path="new/c.txt", old="3", new="4\n5")
    assert edited == "replaced in new/c.txt, line 1:\n     1\t4\n     2\t5"
    assert await use(ctx, "undo_edit", path="./new/c.txt") == "new/c.txt is as it was before".replace("new", "./new")
    assert await use(ctx, "shell", command="cat new/c.txt") == "3"
    await use(ctx, "undo_edit", path="new/c.txt")
    assert await use(ctx, "shell", command="cat new/c.txt") == "1\n2"
    assert await use(ctx, "undo_edit", path="new/c.txt") == "new/c.txt is gone, as before"
    assert "no file" in await fail(ctx, "read_file", path="new/c.txt")
    assert "no change of new/c.txt" in await fail(ctx, "undo_edit", path="new/c.txt")


async def test_a_change_is_not_taken_back_over_another_one(ctx: Context) -> None:
    await use(ctx, "edit_file", path="sub/b.txt", old="two", new="three")
    await use(ctx, "shell", command="echo four >> sub/b.txt")
    assert "changed otherwise" in await fail(ctx, "undo_edit", path="sub/b.txt")
    assert await use(ctx, "shell", command="cat sub/b.txt") == "one\nthree\nfour"


async def test_edits_that_do_not_fit_say_why(ctx: Context) -> None:
    assert "2 times, at lines 2, 6" in await fail(ctx, "edit_file", path="a.py", old="return x + 1", new="return x")
    near = await fail(ctx, "edit_file", path="a.py", old="def f(x):\n  return x + 1", new="")
    assert "other white space at line 1:\n     1\tdef f(x):\n     2\t    return x + 1" in near
    assert "nearest is at line 5:\n     5\tdef g(x):" in await fail(
        ctx, "edit_file", path="a.py", old="def g(y):", new=""
    )
    assert "isn't there; read" in await fail(ctx, "edit_file", path="a.py", old="entirely different words", new="")
    assert "no file none" in await fail(ctx, "edit_file", path="none", old="x", new="y")
    assert "line 2 and 1 more" in await use(
        ctx, "edit_file", path="a.py", old="return x + 1", new="return x", replace_all=True
    )


async def test_edits_of_one_turn_all_count(ctx: Context) -> None:
    await use(ctx, "write_file", path="n", content="".join(f"<{n}>\n" for n in range(20)))
    await asyncio.gather(*(use(ctx, "edit_file", path="n", old=f"<{n}>", new=f"[{n}]") for n in range(20)))
    assert "<" not in await use(ctx, "shell", command="cat n")


async def test_grep_and_list(ctx: Context) -> None:
    assert await use(ctx, "grep", pattern="x \\+ 1") == "a.py:2:    return x + 1\na.py:6:    return x + 1"
    assert await use(ctx, "grep", pattern="TWO", path="sub", ignore_case=True) == "sub/b.txt:2:two"
    assert await use(ctx, "grep", pattern="-e nothing; touch pwned") == "nothing found"
    assert "nmatched" in await fail(ctx, "grep", pattern="(")
    assert "No such file" in await fail(ctx, "grep", pattern="x", path="none")
    await use(ctx, "python", code="open('many', 'w').write('word\\n' * 1000)")
    assert (await use(ctx, "grep", pattern="word")).endswith("[more than 200 lines: the rest is left out]")
    assert await use(ctx, "list_files") == "a.py\nmany\nsub/\nsub/b.txt"
    assert await use(ctx, "list_files", depth=1) == "a.py\nmany\nsub/"
    assert await use(ctx, "list_files", path="sub") == "b.txt"
    assert "none: " in await fail(ctx, "list_files", path="none")
    await use(ctx, "python", code="import os\nfor n in range(1000): open(f'sub/{n}', 'w').close()")
    assert "left out" in await use(ctx, "list_files", path="sub")


async def test_submit_ends_the_rollout(ctx: Context) -> None:
    result = await TOOLS["submit"].call({"answer": "42"}, ctx)
    assert result == ToolResult("42", terminal=True)
    assert (await TOOLS["submit"].call({}, ctx)).terminal


async def test_the_policy_stands_before_the_shell(ctx: Context) -> None:
    (shell,) = sandbox_tools(SPEC, ["shell"], policy=ShellPolicy(allow=["ls", "cat"]))
    assert (await shell.call({"command": "cat sub/b.txt | cat"}, ctx)).content == "one\ntwo"
    refused = await shell.call({"command": "rm a.py"}, ctx)
    assert refused.is_error
    assert refused.content == "'rm' is not allowed here; only these programs are: ls, cat"


async def test_tasks_need_no_files_and_files_may_come_from_a_function() -> None:
    def files(task: Task) -> Mapping[str, str | bytes]:
        return {"name": task.id}

    tools = sandbox_tools(Workspace(SPEC, files), ["shell"])
    async with boxed({}) as ctx:
        assert await use(ctx, "list_files") == "(empty)"
    async with boxed({}) as ctx:
        assert (await tools[0].call({"command": "cat name"}, ctx)).content == "t"
    with pytest.raises(ConfigError, match="must map paths to contents, got str"):
        Workspace(SPEC).setup(Task("t", {"files": "text"}))
    assert Workspace(SPEC).setup(Task("t", {"files": None, "image": "i"})) == {"files": {}, "image": "i"}
