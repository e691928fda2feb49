"""Agents: checked when they are made, opened from a task."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest

import agentfly.agent as af
from agentfly.context import FromTask, Task
from agentfly.errors import ConfigError


@af.tool
def peek(fen: Annotated[str, FromTask], depth: Annotated[int, FromTask] = 1) -> str:
    """Peek."""
    return fen * depth


@af.tool
class Search:
    def __call__(self, query: str) -> str:
        """Search."""
        return query


class Board:
    @af.tool
    def move(self, uci: str) -> str:
        """Move."""
        return uci


@af.reward
def exact(final_response: str, answer: str) -> float:
    return float(final_response == answer)


def task(**fields: Any) -> Task:
    return Task("task-7", fields)


def test_the_field_prompt_opens_by_default() -> None:
    assert af.Agent().open(task(prompt="Hi")) == [{"role": "user", "content": "Hi"}]
    assert af.Agent(system="Be good.").open(task(prompt="Hi")) == [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "Hi"},
    ]


def test_a_list_of_messages_is_taken_and_copied() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U", "name": None},
    ]
    opened = af.Agent(system="ours").open(task(prompt=messages))
    assert opened == [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    opened[0]["content"] = "changed"
    assert messages[0]["content"] == "S"
    assert af.Agent().open(task(prompt=np.array(messages, dtype=object))) == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U"},
    ]


def test_a_template_is_filled_from_the_fields() -> None:
    agent = af.Agent(prompt="{question} {{braces}} {options[0]} {number:>{width}}")
    filled = agent.open(task(question="Q {x}", options=["A"], number=7, width=3))
    assert filled == [{"role": "user", "content": "Q {x} {braces} A   7"}]


def test_a_function_builds_the_opening() -> None:
    agent = af.Agent(prompt=lambda task: [{"role": "user", "content": task["a"] + task.id}], system="S")
    assert [message["content"] for message in agent.open(task(a="x"))] == ["S", "xtask-7"]
    assert af.Agent(prompt=lambda task: "text").open(task()) == [{"role": "user", "content": "text"}]


@pytest.mark.parametrize(
    ("agent", "fields", "words"),
    [
        (af.Agent(), {"question": 1}, ["'prompt'", "task-7", "question"]),
        (af.Agent(prompt="{question}"), {"prompt": 1, "answer": 2}, ["'question'", "task-7", "prompt, answer"]),
        (af.Agent(prompt="{a.b}"), {"a": 1}, ["task-7", "'b'"]),
        (af.Agent(prompt=lambda task: task["x"]), {}, ["task-7", "KeyError: 'x'"]),
        (af.Agent(), {"prompt": 3}, ["task-7", "string or a list", "3"]),
        (af.Agent(), {"prompt": []}, ["task-7", "string or a list"]),
        (af.Agent(), {"prompt": ["hi"]}, ["message 0", "task-7", "'hi'"]),
        (af.Agent(), {"prompt": [{"role": "user"}]}, ["message 0", "task-7", "'content'"]),
    ],
)
def test_a_task_that_does_not_fit_is_one_line(agent: af.Agent, fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        agent.open(Task("task-7", fields))
    line = str(caught.value)
    assert all(word in line for word in words), line
    assert "\n" not in line


def test_check_names_everything_that_is_missing_at_once() -> None:
    agent = af.Agent(tools=[peek], reward=af.weighted({exact: 1.0}), prompt="{question} {context}")
    agent.check(["fen", "answer", "question", "context"])
    with pytest.raises(ConfigError) as caught:
        agent.check(["context", "other"])
    assert str(caught.value) == (
        "the task lacks fields: tool 'peek' asks for 'fen'; reward 'weighted' asks for 'answer'; "
        "the prompt asks for 'question'; its fields are: context, other"
    )
    with pytest.raises(ConfigError, match="the prompt asks for 'prompt'"):
        af.Agent().check([])
    af.Agent(prompt=lambda task: "x").check([])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"tools": [peek, peek]}, "two tools are named 'peek'"),
        ({"tools": [len]}, "@tool"),
        ({"tools": peek}, "list of tools"),
        ({"tools": [Search]}, r"instance, Search\(\.\.\.\)"),
        ({"tools": [Board.move]}, "instance.move"),
        ({"reward": len}, "@reward"),
        ({"max_turns": 0}, "max_turns"),
        ({"max_turns": True}, "max_turns"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_total_tokens": 1.5}, "max_total_tokens"),
        ({"max_invalid_calls": 0}, "max_invalid_calls"),
        ({"max_parallel_calls": None}, "max_parallel_calls"),
        ({"system": 3}, "system"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": "{"}, "malformed"),
        ({"prompt": "{} and {}"}, "without a name"),
        ({"prompt": "{0}"}, "without a name"),
    ],
)
def test_a_wrong_agent_is_an_error_when_it_is_made(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        af.Agent(**arguments)


def test_an_agent_takes_all_kinds_of_tools() -> None:
    agent = af.Agent(tools=(tool for tool in (peek, Search(), Board().move)))  # type: ignore[arg-type]
    assert [tool.name for tool in agent.tools] == ["peek", "Search", "move"]
