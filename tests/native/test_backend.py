from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agentfly.backends.native.backend import NativeBackend, learner_options
from agentfly.backends.native.policy import Policy

from agentfly.agent import Agent, reward
from agentfly.context import Task
from agentfly.errors import ConfigError
from agentfly.models.tiny import build_model, build_tokenizer
from agentfly.rollout.storage import read_jsonl
from agentfly.training.job import TrainingJob
from agentfly.training.loggers import JsonlSink, MetricsLogger
from agentfly.training.run import atrain


@reward
def short(final_response: str) -> float:
    """Anything that differs between the answers of random weights."""
    return 1 / (1 + len(final_response))


AGENT = Agent(reward=short, max_turns=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    build_tokenizer(["say something"] * 5, 280, folder)
    build_model(folder, hidden=32, layers=1, heads=2, max_context=128)
    return folder


def job(folder: Path, output: Path, **changes: Any) -> TrainingJob:
    settings: dict[str, Any] = {
        "agent": AGENT,
        "tasks": [Task(str(number), {"prompt": f"say {number}"}) for number in range(8)],
        "eval_tasks": [Task("held-out", {"prompt": "say 9"})],
        "model": {"path": str(folder), "family": "qwen3"},
        "rollout": {"group_size": 4, "tasks_per_step": 2, "max_tokens": 8, "timeout": 60},
        "optimizer": {"lr": 1e-3},
        "steps": 2,
        "output": output,
    }
    return TrainingJob.model_validate(settings | changes)


def logger(output: Path) -> MetricsLogger:
    return MetricsLogger([JsonlSink(output)])


async def test_it_trains_on_ray_and_resumes(model: Path, tmp_path: Path, ray_cluster: None) -> None:
    first = await atrain(job(model, tmp_path), logger=logger(tmp_path))
    assert first.steps == 2
    assert first.checkpoint is not None
    with pytest.raises(ConfigError, match="checkpoints of an earlier run"):
        await atrain(job(model, tmp_path), logger=logger(tmp_path))
    second = await atrain(job(model, tmp_path, steps=3), resume=True, logger=logger(tmp_path))
    assert second.steps == 3
    assert second.checkpoint is not None

    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    learned = [line for line in lines if "logprob_gap" in line]
    assert [line["step"] for line in learned] == [1, 2, 3]
    # The engine's probabilities are the trainer's, with the weights of every step.
    assert max(line["logprob_gap"] for line in learned) < 1e-3
    assert [line["step"] for line in lines if "eval/reward" in line] == [0, 2, 3]
    trajectories = list(read_jsonl(tmp_path / "trajectories.jsonl"))
    assert len(trajectories) == 3 * 2 * 4
    versions = {int(v) for t in trajectories for s in t.segments for v in s.versions[s.mask]}
    assert versions == {0, 1, 2}
    before = Policy.load(model, device="cpu").weights()
    after = Policy.load(second.checkpoint, device="cpu").weights()
    assert any((before[name] != array).any() for name, array in after.items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout": {"top_p": 0.9}}, r"rollout.top_p: it must be 1.0"),
        ({"rollout": {"top_k": 20}}, r"rollout.top_k: it must be 0"),
        ({"rollout": {"min_p": 0.1}}, r"rollout.min_p"),
        ({"rollout": {"temperature": 0}}, r"rollout.temperature"),
        ({"model": {"path": "nowhere"}}, r"model.path: no folder 'nowhere'"),
        ({"algorithm": {"aggregation": "constant"}}, r"constant.* needs a length"),
    ],
)
def test_what_cannot_be_trained_on_exactly_is_refused(
    model: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        NativeBackend().validate(job(model, tmp_path, **changes))


def test_the_algorithm_reaches_the_learner(model: Path, tmp_path: Path) -> None:
    settings = {"advantage": "rloo", "ratio": "sequence", "clip_high": 0.1, "epochs": 3, "max_tokens_per_batch": 99}
    options = learner_options(job(model, tmp_path, algorithm=settings))
    assert (options.estimator, options.loss.ratio, options.loss.clip_high) == ("rloo", "sequence", 0.1)
    assert (options.epochs, options.max_batch_tokens) == (3, 99)
