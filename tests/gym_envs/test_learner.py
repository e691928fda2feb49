"""A learner that knows nothing of AgentFly learns from an agent's tools."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from agentfly.envs.gym import ToolEnv
from gym_envs.agents import COLOURS, PICKER, PICKER_TASKS
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation
from stable_baselines3 import A2C


def features(text: str) -> np.ndarray:
    return np.array([float(colour in text) for colour in COLOURS], dtype=np.float32)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_stable_baselines_learns_to_call_the_right_tool() -> None:
    space = spaces.Box(0, 1, (len(COLOURS),), np.float32)
    env: gym.Env = TransformObservation(ToolEnv(PICKER, PICKER_TASKS, actions="discrete"), features, space)

    def solved(model: A2C) -> float:
        rewards = []
        for task in range(len(PICKER_TASKS)):
            observation, _ = env.reset(options={"task": task})
            action, _ = model.predict(observation, deterministic=True)
            rewards.append(float(env.step(action)[1]))
        return sum(rewards) / len(rewards)

    model = A2C("MlpPolicy", env, learning_rate=0.02, n_steps=16, seed=0, device="cpu", policy_kwargs={"net_arch": []})
    before = solved(model)
    model.learn(800)
    assert before < solved(model) == 1.0
    env.close()
