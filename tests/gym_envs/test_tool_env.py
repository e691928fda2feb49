from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gym_envs.agents
import gymnasium as gym
import numpy as np
import pytest
from agentfly.envs.gym import ToolEnv, ToolVectorEnv
from agentfly.envs.gym.grammar import grammar_of
from gym_envs.agents import COUNTER, COUNTER_TASKS, FINISHER, TASKS, call
from gymnasium.utils.env_checker import check_env
from ray import cloudpickle
from rollout.tiny_tokenizer import build_folder

from agentfly.agent import Agent, reward, tool
from agentfly.errors import ConfigError, RewardError
from agentfly.rollout.chat_format import ChatFormat

# Ray's workers don't have the tests' folder on their path.
cloudpickle.register_pickle_by_value(gym_envs.agents)

REGISTERED = "agentfly.envs.gym.registration:agentfly/Tools-v0"


@pytest.fixture
def env() -> Iterator[ToolEnv]:
    made = ToolEnv(FINISHER, TASKS, render_mode="ansi")
    yield made
    made.close()


@pytest.mark.filterwarnings("ignore:.*render.*")
@pytest.mark.parametrize("actions", ["text", "structured", "discrete"])
def test_gymnasiums_own_checker_is_content(actions: Any) -> None:
    env = ToolEnv(FINISHER, TASKS, actions=actions, render_mode="ansi")
    check_env(env)
    env.close()


def test_an_episode(env: ToolEnv) -> None:
    opening, info = env.reset(options={"task": 3})
    assert (opening, info) == ("Aufgabe 3: schön!", {"task": "3"})
    assert env.step(call("add", left=2, right=3)) == ("5", 0.0, False, False, {})
    observation, reward, terminated, truncated, info = env.step(call("finish", how="well", sure=True))
    assert (observation, reward, terminated, truncated) == ("well", 1.0, True, False)
    assert (info["finish_reason"], info["turns"]) == ("terminal", 2)
    assert env.render().splitlines()[-1] == "[tool] well"  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("again")


def test_rubbish_is_answered_and_ends_at_the_agents_limit(env: ToolEnv) -> None:
    env.reset(seed=0)
    observation, _, terminated, _, _ = env.step("<tool_call>\n{nothing")
    assert "no end" in observation and not terminated
    observation, _, terminated, truncated, info = env.step("<tool_call>[1]</tool_call>")
    assert (terminated, truncated, info["finish_reason"]) == (True, False, "invalid_calls")


def test_too_many_turns_truncate(env: ToolEnv) -> None:
    env.reset(seed=0)
    steps = [env.step(call("add", left=1, right=1)) for _ in range(4)]
    assert [step[2:4] for step in steps] == [(False, False)] * 3 + [(False, True)]
    assert steps[-1][4]["finish_reason"] == "max_turns"


def test_an_answer_without_a_call_terminates(env: ToolEnv) -> None:
    env.reset(seed=0)
    assert env.step("I give up")[2:4] == (True, False)


def test_the_seed_decides_which_tasks_come(env: ToolEnv) -> None:
    def drawn(seed: int) -> list[str]:
        return [env.reset(seed=seed)[0], *(env.reset()[0] for _ in range(29))]

    assert drawn(1) == drawn(1) != drawn(2)
    assert set(drawn(3)) == {task["prompt"] for task in TASKS}


def test_structured_actions_call_what_they_name() -> None:
    env = ToolEnv(FINISHER, TASKS, actions="structured")
    env.reset(seed=0)
    action = env.action_space.sample()
    action["tool"], action["arguments"]["add"] = 0, {"left": 4, "right": 9}
    assert env.step(action)[0] == "13"
    action["tool"], action["answer"] = 2, "that's all"
    assert env.step(action)[2]
    env.close()


def test_discrete_actions_are_all_calls_and_an_end() -> None:
    env = ToolEnv(FINISHER, TASKS, actions="discrete")
    assert env.action_space == gym.spaces.Discrete(10 * 10 + 2 * 2 + 1)
    env.reset(seed=0)
    assert env.step(37)[0] == "10"
    assert env.step(101)[0:3] == ("well", 1.0, True)
    env.close()


def test_tools_without_a_list_of_calls_have_no_discrete_actions() -> None:
    @tool
    def say(text: str) -> str:
        """Say.

        Args:
            text: what.
        """
        return text

    with pytest.raises(ConfigError, match="'say' can be called in too many ways"):
        ToolEnv([say], TASKS, actions="discrete")


def test_the_grammar_of_a_model_reads_its_calls(tmp_path: Path) -> None:
    format = ChatFormat.load(build_folder(tmp_path), family="qwen3")
    env = ToolEnv(FINISHER, TASKS, grammar=grammar_of(format, FINISHER))
    env.reset(seed=0)
    assert env.step(call("add", left=2, right=2))[0] == "4"
    assert env.step("done")[2]
    env.close()


def test_resources_are_lent_and_nothing_of_an_episode_is_in_the_next() -> None:
    env = ToolEnv(COUNTER, COUNTER_TASKS)
    for _ in range(3):
        for task, start in enumerate((10, 20)):
            env.reset(options={"task": task})
            assert env.step(call("up", by=3))[0] == str(start + 3)
            observation, reward, _, truncated, _ = env.step(call("up", by=4))
            assert (observation, reward, truncated) == (str(start + 7), start + 7, True)
    env.close()


def test_a_reward_that_raises_is_raised() -> None:
    @reward
    def broken() -> float:
        raise ValueError("no")

    env = ToolEnv(Agent(), TASKS, reward=broken)
    env.reset(seed=0)
    with pytest.raises(RewardError, match="ValueError: no"):
        env.step("end")
    env.close()


def test_what_does_not_fit_is_said_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="at least one task"):
        ToolEnv(FINISHER, [])
    with pytest.raises(ConfigError, match="'start'"):
        ToolEnv(COUNTER, TASKS)
    with pytest.raises(ConfigError, match="number below 5"):
        ToolEnv(FINISHER, TASKS).reset(options={"task": 5})


def test_it_is_registered_and_vectorised_by_gymnasium() -> None:
    env = gym.make(REGISTERED, agent_or_tools=FINISHER, tasks=TASKS)
    assert env.reset(seed=0)[1]["task"] in {"0", "1", "2", "3", "4"}
    env.close()
    options: dict[str, Any] = {"agent_or_tools": FINISHER, "tasks": TASKS}
    together = [
        gym.make_vec(REGISTERED, num_envs=3, vectorization_mode="sync", **options),
        gym.make_vec(REGISTERED, num_envs=3, vectorization_mode="vector_entry_point", pools="process", **options),
    ]
    actions = (call("add", left=4, right=4), "done", call("finish", how="well", sure=True))
    played = []
    for each in together:
        seen: list[Any] = [each.reset(seed=7)[0]]
        for _ in range(4):
            observations, *rest, _ = each.step(actions)
            seen.append((observations, [np.asarray(part).tolist() for part in rest]))
        played.append(seen)
        each.close()
    assert played[0] == played[1]
    assert played[0][1][1] == [[0.0, 0.0, 1.0], [False, True, True], [False, False, False]]


def test_processes_of_gymnasiums_own_get_texts_whole_or_an_error() -> None:
    options: dict[str, Any] = {"agent_or_tools": FINISHER, "tasks": TASKS}
    with pytest.raises(ValueError, match="shared_memory"):
        gym.make_vec(REGISTERED, num_envs=2, vectorization_mode="async", **options)
    async_options = {"shared_memory": False}
    each = gym.make_vec(REGISTERED, num_envs=2, vectorization_mode="async", vector_kwargs=async_options, **options)
    opening, _ = each.reset(seed=0)
    assert all(text.endswith("schön!") for text in opening)
    each.close()


@pytest.mark.usefixtures("ray_cluster")
def test_a_thousand_episodes_at_once_in_pools_on_ray() -> None:
    with closing(ToolVectorEnv(COUNTER, COUNTER_TASKS, num_envs=1000)) as each:
        opening, _ = each.reset(seed=0)
        starts = np.array([int(text.split()[-1]) for text in opening])
        observations, _, _, _, _ = each.step([call("up", by=1)] * 1000)
        assert [int(text) for text in observations] == (starts + 1).tolist()
        _, rewards, terminated, truncated, _ = each.step([call("up", by=index % 10) for index in range(1000)])
        assert rewards.tolist() == (starts + 1 + np.arange(1000) % 10).tolist()
        assert truncated.all() and not terminated.any()
