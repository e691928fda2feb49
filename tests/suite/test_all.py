"""What holds for every environment of the suite."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from agentfly.envs.episodes import Move, Script
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout.tiny_tokenizer import build_folder
from suite.roster import SUITES, Suite, play

from agentfly.context import Task
from agentfly.models.spec import ModelSpec
from agentfly.rollout.api import arollout

EACH = pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
WITH_EPISODES = pytest.mark.parametrize(
    "suite", [suite for suite in SUITES if suite.spec is not None], ids=lambda suite: suite.name
)
rubbish = st.text(max_size=60)


@EACH
def test_tasks_follow_from_their_seed_and_have_what_is_asked_for(suite: Suite) -> None:
    tasks = suite.make_tasks(20)
    assert [task.fields for task in tasks] == [task.fields for task in suite.make_tasks(20)]
    assert len({task.id for task in tasks}) == len({task["prompt"] for task in tasks}) == 20
    assert [task.fields for task in suite.make_tasks(20, seed=10_000)] != [task.fields for task in tasks]
    for task in tasks:
        suite.agent.check(task.fields)


@EACH
def test_no_task_is_both_trained_on_and_held_out(suite: Suite) -> None:
    held_out = {task["prompt"] for seed in range(2) for task in suite.make_tasks(10, held_out=True, seed=seed)}
    assert not held_out & {task["prompt"] for task in suite.make_tasks(30)}


@EACH
def test_the_oracle_gets_the_top_reward(suite: Suite) -> None:
    played = play(suite, suite.make_tasks(12), suite.oracle)
    assert [each["reward"] for each in played] == pytest.approx([1.0] * 12)


@EACH
def test_a_random_policy_does_not(suite: Suite) -> None:
    rng = random.Random(0)

    def policy(task: Task) -> list[Move]:
        moves = []
        for _ in range(suite.agent.max_turns):
            tool = rng.choice(suite.agent.tools)
            moves.append(Move(tool.name, {next(iter(tool.parameters["properties"])): rng.choice(suite.words)}))
        return moves

    rewards = [each["reward"] for each in play(suite, suite.make_tasks(12), policy)]
    assert sum(rewards) / len(rewards) < 0.5


@EACH
def test_rubbish_is_survived_by_the_tools(suite: Suite) -> None:
    rng = random.Random(1)
    bad: list[Any] = ["", "\x00", "ж" * 5000, "../..", "'; DROP TABLE passages; --", "[]", "[" * 500, 7, None, [1], {}]

    def policy(task: Task) -> list[Move]:
        moves = []
        for _ in range(3):
            tool = rng.choice(suite.agent.tools)
            moves.append(Move(tool.name, {next(iter(tool.parameters["properties"])): rng.choice(bad)}))
        return [*moves, *suite.oracle(task)]

    for each in play(suite, suite.make_tasks(12), policy):
        assert 0.0 <= each["reward"] <= 1.0
        assert each["finish_reason"] in ("stop", "terminal", "max_turns")


async def episode(environment: Any, task: Task, actions: list[str]) -> list[Any]:
    await environment.setup(options=dict(task.fields))
    seen: list[Any] = [await environment.observe()]
    for action in actions:
        seen.append(await environment.step(action))
    seen.append(await environment.episode())
    await environment.reset()
    return seen


@cache
def few_tasks(suite: Suite) -> list[Task]:
    return suite.make_tasks(6)


def made(suite: Suite) -> Any:
    assert suite.spec is not None
    return suite.spec.make()


@WITH_EPISODES
@settings(deadline=None, max_examples=10)
@given(data=st.data())
async def test_an_episode_in_a_used_slot_equals_the_same_one_in_a_new_slot(suite: Suite, data: st.DataObject) -> None:
    tasks = few_tasks(suite)
    right = [suite.act(move) for task in tasks for move in suite.oracle(task)]
    actions = st.lists(st.sampled_from([*right, *suite.words]) | rubbish, max_size=8)
    used = made(suite)
    for _ in range(data.draw(st.integers(1, 3))):
        await episode(used, data.draw(st.sampled_from(tasks)), data.draw(actions))
    task, played = data.draw(st.sampled_from(tasks)), data.draw(actions)
    assert await episode(used, task, played) == await episode(made(suite), task, played)


@WITH_EPISODES
async def test_the_oracle_wins_after_any_number_of_episodes(suite: Suite) -> None:
    environment = made(suite)
    for task in suite.make_tasks(12):
        seen = await episode(environment, task, [suite.act(move) for move in suite.oracle(task)])
        assert getattr(seen[-1], "total", None) == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@EACH
async def test_the_oracle_wins_on_the_whole_engine(suite: Suite, tmp_path: Path) -> None:
    tasks = suite.make_tasks(3)
    script = Script(tasks, suite.oracle)
    model = ModelSpec(engine="scripted", path=build_folder(tmp_path), family="qwen3", options={"script": script})
    for trajectory in await arollout(suite.agent, tasks, model, group_size=2):
        assert trajectory.error is None
        assert trajectory.reward == pytest.approx(1.0)
