"""Rollouts with tools, and training, through pools of the real vLLM on Ray."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from assets import difference, logprobs, options
from talker import looking_agent, make_talker, prompt

from agentfly.context import Task
from agentfly.models.engine import Sampling
from agentfly.models.spec import ModelSpec
from agentfly.rollout.api import arollout
from agentfly.rollout.request import RolloutOptions
from agentfly.training.job import TrainingJob
from agentfly.training.loggers import JsonlSink, MetricsLogger
from agentfly.training.run import atrain


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """Ray on this machine; it believes in eight CPUs, whatever there are."""
    ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model that calls tools."""
    return make_talker(tmp_path_factory.mktemp("talker"))


@pytest.mark.usefixtures("ray_cluster")
async def test_rollouts_are_exactly_what_vllm_drew(talker: str) -> None:
    model = ModelSpec(engine="vllm", path=talker, family="qwen3", options=options())
    tasks = [{"prompt": prompt(number)} for number in range(4)]
    played = RolloutOptions(sampling=Sampling(max_tokens=32), timeout=200)
    trajectories = await arollout(looking_agent(), tasks, model, group_size=2, options=played, seed=5)
    assert len(trajectories) == 8
    assert sum(trajectory.tool_calls - trajectory.tool_errors for trajectory in trajectories) >= 6
    for trajectory in trajectories:
        assert trajectory.trainable, trajectory
        for segment in trajectory.segments:
            ids = [int(token) for token in segment.ids]
            drawn = np.flatnonzero(segment.mask)
            expected = logprobs(talker, ids[:1], ids[1:])
            assert difference([float(segment.logprobs[i]) for i in drawn], [expected[i - 1] for i in drawn]) < 1e-3
            assert {int(version) for version in segment.versions[drawn]} == {0}


@pytest.mark.usefixtures("ray_cluster")
async def test_the_native_backend_trains_with_it(talker: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "agent": looking_agent(),
        "tasks": [Task(str(number), {"prompt": prompt(number)}) for number in range(8)],
        "model": {"engine": "vllm", "path": talker, "family": "qwen3", "options": options()},
        "rollout": {"group_size": 4, "tasks_per_step": 2, "max_tokens": 32, "timeout": 200},
        "optimizer": {"lr": 1e-3},
        "steps": 2,
        "output": tmp_path,
    }
    result = await atrain(TrainingJob.model_validate(settings), logger=MetricsLogger([JsonlSink(tmp_path)]))
    assert result.steps == 2
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    learned = [line for line in lines if "logprob_gap" in line]
    assert [line["step"] for line in learned] == [1, 2]
    # vLLM's probabilities are the trainer's, with the weights of each step.
    assert max(line["logprob_gap"] for line in learned) < 1e-3
