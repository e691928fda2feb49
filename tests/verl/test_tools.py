"""verl's tools run unchanged as AgentFly's."""

from __future__ import annotations

from pathlib import Path

import pytest
from agentfly.backends.verl.tools import load_tools

from agentfly.agent import Agent, Tool
from agentfly.context import Context, Task
from agentfly.errors import ConfigError

CONFIG = """\
tools:
  - class_name: verl_tools.Adder
    config: {type: native}
    tool_schema:
      type: function
      function:
        name: add
        description: Add two numbers.
        parameters:
          type: object
          properties:
            a: {type: integer, description: one}
            b: {type: integer, description: another}
          required: [a]
  - class_name: verl_tools.Camera
    config: {type: native}
    tool_schema:
      type: function
      function: {name: camera, description: See., parameters: {type: object, properties: {}, required: []}}
"""


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, Tool]:
    (tmp_path / "tools.yaml").write_text(CONFIG)
    loaded = load_tools(tmp_path / "tools.yaml", Path(__file__).with_name("verl_functions.py"))
    return {tool.name: tool for tool in loaded}


def context(**fields: object) -> Context:
    return Context(rollout_id="r", group_id="g", task=Task("t", {"prompt": [], **fields}))


async def test_a_base_tool_lives_as_in_verl(tools: dict[str, Tool]) -> None:
    import verl_tools

    tool, ctx = tools["add"], context(tools_kwargs={"add": {"create_kwargs": {"offset": 100}}})
    first = await tool.call({"a": 1, "b": 2}, ctx)
    second = await tool.call('{"a": 5}', ctx)
    assert (first.content, second.content) == ("103 after [1]", "105 after [1, 5]"), "one AgentData for a rollout"
    assert first.metrics == {"total": 103.0, "tool_reward": 0.5}
    assert (await tool.call({"a": 5}, context())).content == "5 after [5]"
    wrong = await tool.call({}, ctx)
    assert wrong.is_error and "KeyError" in wrong.content
    (adder,) = [
        cell.cell_contents for cell in tool.__wrapped__.__closure__ if isinstance(cell.cell_contents, verl_tools.Adder)
    ]
    assert (adder.instances, adder.released) == ({}, 4), "an instance is released whatever happened"


async def test_the_model_sees_verls_schema(tools: dict[str, Tool]) -> None:
    assert tools["add"].spec == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "description": "one"},
                    "b": {"type": "integer", "description": "another"},
                },
                "required": ["a"],
            },
        },
    }
    assert Agent(tools=list(tools.values())).tools


async def test_functions_of_both_kinds_run(tools: dict[str, Tool]) -> None:
    assert (await tools["shout"].call({"text": "hi"}, context())).content == "HI"
    slow = await tools["slowly"].call({"text": "hi"}, context())
    assert (slow.content, slow.metrics) == ("h i", {"length": 2.0, "tool_reward": 1.0})
    wrong = await tools["shout"].call("[1]", context())
    assert wrong.is_error and "one JSON object" in wrong.content


async def test_a_picture_is_told_not_lost(tools: dict[str, Tool]) -> None:
    answer = await tools["camera"].call({}, context())
    assert answer.is_error and "image" in answer.content


def test_a_file_that_can_not_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text(CONFIG.replace("verl_tools.Adder", "nowhere.Adder"))
    with pytest.raises(ConfigError, match=r"tools\.yaml can't be loaded"):
        load_tools(tmp_path / "tools.yaml")
