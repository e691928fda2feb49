"""Scripted policies on the whole engine: who mends the repository gets the reward, who doesn't gets none."""

from __future__ import annotations

from pathlib import Path

import pytest
from agentfly.envs.swe import agent, make_tasks
from rollout.tiny_tokenizer import build_folder

from agentfly.models.spec import ModelSpec
from agentfly.rollout.api import arollout


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(("policy", "reward"), [("oracle", 1.0), ("idle", 0.0)])
async def test_a_policy_gets_what_it_deserves(tmp_path: Path, policy: str, reward: float) -> None:
    script = f"agentfly.envs.swe.policies:{policy}"
    model = ModelSpec(engine="scripted", path=build_folder(tmp_path), family="qwen3", options={"script": script})
    for trajectory in await arollout(agent, make_tasks()[::3], model):
        assert trajectory.error is None
        assert (trajectory.finish_reason, trajectory.turns, trajectory.tool_errors) == ("terminal", 2, 0)
        assert trajectory.reward == reward
        assert trajectory.metrics["pass_to_pass"] == 1.0
