from __future__ import annotations

import random
from typing import Any

import gymnasium
import pytest
from agentfly.envs.episodes import Step
from agentfly.envs.gym import PRESETS, ToolEnv, gym_agent, gym_resource, gym_tasks
from agentfly.envs.gym.action_text import NotAnAction, read_action
from agentfly.envs.gym.observation_text import as_text, plain
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly.errors import ConfigError

LAKE = gym_resource("FrozenLake-v1", kwargs={"is_slippery": False})
WAY = ("down", "down", "right", "right", "down", "right")


def call(action: str) -> str:
    import json

    return f"<tool_call>{json.dumps({'name': 'act', 'arguments': {'action': action}})}</tool_call>"


async def play(environment: Any, seed: int, actions: list[str]) -> list[Step | str]:
    """One lease."""
    await environment.setup(options={"seed": seed})
    seen: list[Step | str] = [await environment.observe()]
    for action in actions:
        seen.append(await environment.step(action))
    await environment.reset()
    return seen


def made(env_id: str, **kwargs: Any) -> Any:
    return gym_resource(env_id, **kwargs).make()


@pytest.mark.parametrize("env_id", sorted(PRESETS))
async def test_every_preset_plays_the_same_in_a_reused_slot_and_a_new_one(env_id: str) -> None:
    rng = random.Random(0)
    names = PRESETS[env_id].actions
    before, actions = ([rng.choice(names) for _ in range(20)] for _ in range(2))
    used, new = made(env_id), made(env_id)
    await used.start()
    await play(used, 3, before)
    try:
        assert await play(used, 7, actions) == await play(new, 7, actions)
    finally:
        await used.stop()
        await new.stop()


def test_who_knows_the_way_gets_the_reward_and_who_walks_about_does_not() -> None:
    env = ToolEnv(gym_agent(LAKE), gym_tasks(LAKE, 2))
    opening, _ = env.reset(seed=0)
    assert "[S]FFF" in opening and "Reach G" in opening
    steps = [env.step(call(action)) for action in WAY]
    assert [step[2] for step in steps] == [False] * 5 + [True]
    assert steps[-1][1] == 1.0 and "[G]" in steps[-1][0]
    won = []
    for seed in range(20):
        rng = random.Random(seed)
        env.reset(seed=seed)
        done = False
        while not done:
            _, reward, terminated, truncated, _ = env.step(call(rng.choice(["left", "down", "right", "up"])))
            done = terminated or truncated
        won.append(reward)
    assert sum(won) / len(won) < 0.3
    env.close()


def test_the_action_tool_comes_from_the_action_space() -> None:
    act, look = gym_agent(LAKE).tools
    assert act.parameters["properties"]["action"]["enum"] == ["left", "down", "right", "up"]
    assert look.parameters["properties"] == {}


def test_tasks_without_gymnasium_here_have_the_tool_look() -> None:
    (task,) = gym_tasks(gym_resource("NoSuch-v1"), 1, first_observation=False)
    assert "look" in task["prompt"]
    with pytest.raises(ConfigError, match="'NoSuch-v1' can't be made"):
        gym_tasks(gym_resource("NoSuch-v1"), 1)


async def test_rubbish_changes_nothing() -> None:
    environment = made("FrozenLake-v1")
    try:
        rubbish = ["", "fly", "99", "-1", "\x00" * 9999, "[0]", "true", "1.5", "{}"]
        seen = await play(environment, 0, rubbish)
        assert all(isinstance(step, Step) and "no action" in step.observation for step in seen[1:])
        assert isinstance(seen[0], str) and "[S]" in seen[0]
    finally:
        await environment.stop()


async def test_an_episode_that_is_over_stays_over() -> None:
    environment = made("FrozenLake-v1", kwargs={"is_slippery": False}, max_steps=2)
    await environment.setup(seed=0)
    steps = [await environment.step(action) for action in ("left", "left", "right")]
    assert [step.truncated for step in steps[:2]] == [False, True]
    assert steps[2].info == {"over": True}
    assert (await environment.episode()).steps == 2
    await environment.stop()


SPACES = [
    spaces.Discrete(4),
    spaces.Discrete(3, start=5),
    spaces.Box(-1, 1, (2, 2)),
    spaces.MultiDiscrete([3, 4]),
    spaces.MultiBinary(3),
    spaces.Text(5, charset="abc"),
    spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (1,))}),
    spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
]


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(SPACES), st.text(max_size=30) | st.sampled_from(["[[0,0],[0,1]]", "[1, 2]", "null", "[1e999]"]))
def test_whatever_is_written_is_an_element_or_an_error(space: Any, text: str) -> None:
    try:
        element = read_action(text, space, ())
    except NotAnAction:
        return
    assert space.contains(element)


@pytest.mark.parametrize(
    ("space", "text"),
    [(SPACES[1], "6"), (SPACES[2], "[[0, 0.5], [1, -1]]"), (SPACES[3], "[2, 3]"), (SPACES[5], "abc")],
)
def test_elements_are_read(space: Any, text: str) -> None:
    assert space.contains(read_action(text, space, ()))
    assert gymnasium.spaces.Discrete(2).contains(read_action(" LEFT ", spaces.Discrete(2), ("left", "right")))


def test_observations_as_text() -> None:
    assert plain("  (Left)\n\x1b[41mS\x1b[0mFF\n") == "  (Left)\n[S]FF"
    assert as_text({"a": (1, 2), "b": spaces.Box(0, 1, (2,)).low}) == "a: 1, 2\nb: [0., 0.]"


async def test_minigrid_says_what_is_in_view() -> None:
    environment = made("MiniGrid-DoorKey-5x5-v0")
    await environment.setup(seed=4)
    seen = await environment.observe()
    assert seen.startswith("Mission: use the key to open the door")
    assert "yellow key:" in seen
    await environment.stop()
