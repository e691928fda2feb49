"""An agent that isn't ours, trained: its calls over HTTP are what the learner learns from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentfly.agent import reward
from agentfly.agent.harness import HarnessAgent
from agentfly.context import Task
from agentfly.errors import ConfigError
from agentfly.models.spec import ModelSpec
from agentfly.models.tiny import build_model, build_tokenizer
from agentfly.rollout.api import arollout
from agentfly.rollout.storage import read_jsonl
from agentfly.training.job import TrainingJob
from agentfly.training.loggers import JsonlSink, MetricsLogger
from agentfly.training.run import atrain


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    build_tokenizer(["say something", "go on"] * 5, 280, folder)
    build_model(folder, hidden=32, layers=1, heads=2, max_context=256)
    return folder


def two_calls(**changes: Any) -> HarnessAgent:
    """A harness of local functions, which travel to Ray's workers by value."""

    @reward
    def short(final_response: str) -> float:
        return 1 / (1 + len(final_response))

    async def run(task: Task, base_url: str, api_key: str) -> str:
        import openai

        async with openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0) as client:
            messages: list[Any] = [{"role": "user", "content": task["prompt"]}]
            for _ in range(2):
                answer = await client.chat.completions.create(model="policy", messages=messages, max_tokens=6)
                messages += [{"role": "assistant", "content": answer.choices[0].message.content}]
                messages += [{"role": "user", "content": "go on"}]
        return str(messages[-2]["content"])

    settings: dict[str, Any] = {"run": run, "reward": short, **changes}
    return HarnessAgent(**settings)


async def test_a_harness_trains_in_the_native_backend(model: Path, tmp_path: Path, ray_cluster: None) -> None:
    job = TrainingJob.model_validate(
        {
            "agent": two_calls(),
            "tasks": [Task(str(number), {"prompt": f"say {number}"}) for number in range(4)],
            "model": {"path": str(model), "family": "qwen3"},
            "rollout": {"group_size": 4, "tasks_per_step": 2, "max_tokens": 8, "timeout": 60},
            "optimizer": {"lr": 1e-3},
            "steps": 2,
            "output": tmp_path,
        }
    )
    result = await atrain(job, logger=MetricsLogger([JsonlSink(tmp_path)]))
    assert result.steps == 2
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    learned = [line for line in lines if "logprob_gap" in line]
    # The tokens that were captured are those that the engine sampled: the trainer finds their probabilities.
    assert [line["step"] for line in learned] == [1, 2]
    assert max(line["logprob_gap"] for line in learned) < 1e-3
    trajectories = list(read_jsonl(tmp_path / "trajectories.jsonl"))
    assert len(trajectories) == 2 * 2 * 4
    for trajectory in trajectories:
        assert (trajectory.turns, trajectory.finish_reason, trajectory.error) == (2, "stop", None)
        assert [message["role"] for message in trajectory.messages] == ["user", "assistant", "user", "assistant"]
        assert 2 <= sum(int(segment.mask.sum()) for segment in trajectory.segments) <= 12
    versions = {int(v) for t in trajectories for s in t.segments for v in s.versions[s.mask]}
    assert versions == {0, 1}


async def test_limits_and_errors_of_a_harness(model: Path, ray_cluster: None) -> None:
    spec = ModelSpec(path=str(model), family="qwen3")
    (limited,) = await arollout(two_calls(max_turns=1), [{"prompt": "say 1"}], spec)
    assert (limited.finish_reason, limited.turns, limited.trainable) == ("max_turns", 1, True)

    async def clumsy(task: Task, base_url: str, api_key: str) -> None:
        raise KeyError("oh")

    (failed,) = await arollout(two_calls(run=clumsy), [{"prompt": "say 1"}], spec)
    assert (failed.finish_reason, failed.trainable, failed.reward) == ("error", False, None)
    assert failed.error == "the harness raised KeyError: 'oh'"


def test_what_is_no_harness_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be an async function"):
        two_calls(run=lambda task, url, key: None)
    two_calls().check([])
