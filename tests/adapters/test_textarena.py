from __future__ import annotations

import json
import random
from contextlib import closing
from typing import Any

import pytest
from agentfly.envs.gym import ToolEnv
from agentfly.envs.textarena import (
    SINGLE_PLAYER,
    TWO_PLAYERS,
    textarena_agent,
    textarena_resource,
    textarena_tasks,
)

from agentfly.errors import ConfigError

MOVES = ["[4]", "[0]", "[a b]", "[up]", "[8]", "rubbish", "[1 2 3 4]", "[0 1]", "[A C]", ""]


def made(env_id: str) -> Any:
    return textarena_resource(env_id).make()


async def episode(environment: Any, seed: int, actions: list[str]) -> list[Any]:
    await environment.setup(options={"seed": seed})
    seen: list[Any] = [await environment.observe()]
    for action in actions:
        random.random()  # what others draw meanwhile changes nothing
        seen.append(await environment.step(action))
    seen.append(await environment.episode())
    await environment.reset()
    return seen


@pytest.mark.parametrize("env_id", [*SINGLE_PLAYER, *TWO_PLAYERS])
async def test_a_game_in_a_used_slot_equals_the_same_one_in_a_new_slot(env_id: str) -> None:
    used = made(env_id)
    await episode(used, 1, MOVES)
    assert await episode(used, 2, MOVES) == await episode(made(env_id), 2, MOVES)


def play(env: ToolEnv, action: str) -> tuple[Any, ...]:
    return env.step(f"<tool_call>{json.dumps({'name': 'play', 'arguments': {'action': action}})}</tool_call>")


def test_halving_wins_and_guessing_the_same_does_not() -> None:
    spec = textarena_resource("GuessTheNumber-v0")
    rewards = {"halving": [], "same": []}  # type: dict[str, list[float]]
    with closing(ToolEnv(textarena_agent(spec), textarena_tasks(spec, 5))) as env:
        for policy, won in rewards.items():
            for task in range(5):
                env.reset(options={"task": task})
                low, high, done = 1, 20, False
                while not done:
                    middle = (low + high) // 2
                    seen, reward, terminated, truncated, _ = play(env, f"[{middle if policy == 'halving' else 1}]")
                    low, high = (middle + 1, high) if "higher" in seen else (low, middle - 1)
                    done = terminated or truncated
                won.append(reward)
    assert rewards["halving"] == [1.0] * 5
    assert all(0 <= reward < 1 for reward in rewards["same"])


def test_an_opponent_moves_between_ours() -> None:
    spec = textarena_resource("TicTacToe-v0")
    with closing(ToolEnv(textarena_agent(spec), textarena_tasks(spec, 1))) as env:
        opening, _ = env.reset(seed=0)
        assert "Player 0" in opening
        seen = play(env, "4")[0]
        assert "X" in seen and "O" in seen


def test_a_game_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="TextArena can't make 'NoSuchGame-v0'"):
        textarena_tasks(textarena_resource("NoSuchGame-v0"), 1)
