from __future__ import annotations

from contextlib import closing

import pytest
from agentfly.envs.calculator import calculate
from agentfly.envs.gym import ToolEnv
from agentfly.envs.reasoning import ReasoningJudge, reasoning_agent, reasoning_tasks

from agentfly.errors import ConfigError

SOME = ["leg_counting", "chain_sum", "basic_arithmetic", "letter_counting", "gcd", "knights_knaves"]


@pytest.mark.parametrize("dataset", SOME)
def test_the_right_answer_gets_the_top_reward_and_another_one_does_not(dataset: str) -> None:
    tasks = reasoning_tasks(dataset, 4)
    assert [task.fields for task in tasks] == [task.fields for task in reasoning_tasks(dataset, 4)]
    assert tasks[3].fields == reasoning_tasks(dataset, 1, first=3)[0].fields
    with closing(ToolEnv(reasoning_agent(), tasks)) as env:
        for index, task in enumerate(tasks):
            for said, right in ((task["answer"], True), ("no idea", False), ("", False)):
                env.reset(options={"task": index})
                reward = env.step(f"<answer>{said}</answer>")[1]
                assert (reward == 1.0) == right


def test_tools_go_with_it() -> None:
    agent = reasoning_agent(tools=[calculate], max_turns=3)
    with closing(ToolEnv(agent, reasoning_tasks("chain_sum", 1))) as env:
        env.reset(seed=0)
        assert env.step('<tool_call>{"name": "calculate", "arguments": {"expression": "1+1"}}</tool_call>')[0] == "2"


def test_what_a_generator_can_not_do_is_said() -> None:
    with pytest.raises(ConfigError, match="'no_such_thing'"):
        reasoning_tasks("no_such_thing", 1)
    with pytest.raises(ConfigError, match="'leg_counting' with {'min_animals': -1}"):
        reasoning_tasks("leg_counting", 1, config={"min_animals": -1})


async def test_rubbish_is_worth_nothing() -> None:
    judge = ReasoningJudge()
    for answer in ("", "\x00", "[" * 1000, "9" * 10_000):
        assert await judge.score(answer, "leg_counting", 0, 0, {}) < 1.0
