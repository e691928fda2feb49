from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest
from agentfly.envs.file_math import agent, made_trace, make_tasks
from agentfly.envs.file_math.agent import SANDBOX, exact, python, read_file
from agentfly.envs.file_math.tasks import expressions, solve

from agentfly.context import Context, Task
from agentfly.errors import ConfigError
from agentfly.resources.sandbox import Sandbox
from agentfly.resources.spec import ResourceSpec


def test_held_out_expressions_are_never_trained_on() -> None:
    training = {task["expression"] for seed in range(3) for task in make_tasks(1000, seed=seed)}
    held_out = {task["expression"] for seed in range(3) for task in make_tasks(256, held_out=True, seed=seed)}
    assert not training & held_out
    assert len({task["expression"] for task in make_tasks(1000)}) == 1000


def test_tasks_are_right_and_follow_from_their_seed() -> None:
    for task in make_tasks(50):
        assert task["answer"] == str(eval(task["expression"]))
        ((name, content),) = task["files"].items()
        assert name in task["prompt"]
        assert content == task["expression"]
        agent.check(task.fields)
    assert make_tasks(50, seed=1) == make_tasks(50, seed=1) != make_tasks(50, seed=2)


def test_more_tasks_than_there_are_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"\d+ held-out tasks, not 100000"):
        make_tasks(100_000, held_out=True)


def traces(count: int) -> list[tuple[Task, list[dict[str, Any]]]]:
    rng = random.Random(0)
    return [(task, cast("list[dict[str, Any]]", made_trace(task, rng))) for task in make_tasks(count)]


def test_traces_seldom_succeed_and_teach_every_step() -> None:
    good = reads = computes = 0
    for task, messages in traces(2000):
        said = [message["content"] for message in messages if message["role"] == "assistant"]
        read = '"read_file"' in said[0] and task["files"].keys() <= set(said[0].split('"'))
        reads += read
        computes += len(said) > 1 and f'"{task["expression"]}"' in said[1]
        good += len(said) <= agent.max_turns and said[-1] == task["answer"]
    assert 0.08 < good / 2000 < 0.2
    assert reads / 2000 > 0.4
    assert computes / 2000 > 0.2


def test_traces_alternate_and_end_with_the_assistant_and_use_no_held_out_expression() -> None:
    held_out = set(expressions(True))
    for _, messages in traces(500):
        roles = [message["role"] for message in messages]
        assert roles[0] == "user"
        assert roles[1::2] == ["assistant"] * (len(roles) // 2)
        assert roles[-1] == "assistant"
        texts = " ".join(message["content"] for message in messages).replace('"', " ").split()
        assert not held_out & set(texts)


class OneSandbox:
    """A context that leases one real sandbox."""

    def __init__(self, task: Task, box: Sandbox) -> None:
        self.task = task
        self.waited = 0.0
        self._box = box
        self._ready = False

    async def acquire(self, spec: ResourceSpec[Sandbox], *, setup: Mapping[str, Any]) -> Sandbox:
        assert spec is SANDBOX
        if not self._ready:
            await self._box.setup(**setup)
            self._ready = True
        return self._box


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    box = SANDBOX.resource(**SANDBOX.args)
    await box.start()
    yield cast("Context", OneSandbox(make_tasks(1)[0], box))
    await box.stop()


async def test_the_way_to_the_answer(ctx: Context) -> None:
    (name,) = ctx.task["files"]
    read = await read_file.call({"path": name}, ctx)
    computed = await python.call({"code": read.content}, ctx)
    assert computed.content == ctx.task["answer"] == solve(ctx.task["expression"])
    assert (await exact(final_response=computed.content, trajectory=None, ctx=ctx)).value == 1.0
    assert (await exact(final_response="about 5000", trajectory=None, ctx=ctx)).value == 0.0


async def test_mistakes_are_short_observations(ctx: Context) -> None:
    missing = await read_file.call({"path": "q00.txt"}, ctx)
    assert missing.is_error
    assert missing.content == "there is no file q00.txt"
    wrong_tool = await python.call({"code": "q41.txt"}, ctx)
    assert wrong_tool.is_error
    assert wrong_tool.content == "NameError: name 'q41' is not defined"


async def test_variables_live_on_between_calls(ctx: Context) -> None:
    await python.call({"code": "x = 20"}, ctx)
    assert (await python.call({"code": "x + 1"}, ctx)).content == "21"


def test_tools_show_the_model_its_arguments_alone() -> None:
    assert [list(tool.parameters["properties"]) for tool in agent.tools] == [["path"], ["code"]]
