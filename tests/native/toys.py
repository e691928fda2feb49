"""A tiny model without words, a bandit to teach it, and a source of rollouts without Ray."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agentfly.backends.native.learner import Learner, LearnerOptions
from agentfly.backends.native.optimizer import Optimizer, OptimizerOptions
from agentfly.backends.native.policy import Policy
from transformers import AutoModelForCausalLM

from agentfly.context.task import Task
from agentfly.models.tiny import build_model
from agentfly.rollout.request import GroupRequest
from agentfly.rollout.trajectory import Group, Segment, Trajectory

VOCAB = 12


def segment(
    ids: list[int], sampled: list[int], logprobs: Mapping[int, float] | None = None, version: int = 0
) -> Segment:
    """A segment whose places `sampled` were sampled."""
    mask = np.zeros(len(ids), np.bool_)
    mask[sampled] = True
    values = np.zeros(len(ids), np.float32)
    for place, value in (logprobs or {}).items():
        values[place] = value
    return Segment(np.array(ids, np.int32), mask, values, np.where(mask, version, -1).astype(np.int32))


def trajectory(segments: list[Segment], reward: float | None, index: int = 0, group: str = "g") -> Trajectory:
    """A finished rollout."""
    return Trajectory(f"{group}.{index}", group, index, Task("t"), segments=segments, reward=reward)


def group(rewards: list[float | None], segments: list[list[Segment]], name: str = "g") -> Group:
    """One group of rollouts."""
    members = [
        trajectory(parts, reward, index, name)
        for index, (reward, parts) in enumerate(zip(rewards, segments, strict=True))
    ]
    return Group(name, Task("t"), members)


def tiny_policy(folder: Path, *, seed: int = 0, temperature: float = 1.0) -> Policy:
    """A policy of a few thousand weights."""
    build_model(folder, vocab_size=VOCAB, hidden=16, layers=1, heads=2, max_context=64, seed=seed, init_std=0.3)
    return Policy.load(folder, temperature=temperature, device="cpu")


def tiny_learner(folder: Path, *, lr: float = 1e-2, steps: int = 10, options: LearnerOptions | None = None) -> Learner:
    """A learner of such a policy."""
    policy = tiny_policy(folder)
    optimizer = Optimizer(policy.model.parameters(), OptimizerOptions(lr=lr), steps)
    return Learner(policy, optimizer, options or LearnerOptions())


class BanditSource:
    """Samples one token after a prompt of the task's number; right is the token that follows the number.

    Args:
        folder: model folder; the weights come by `update_weights`.
        broken: index of a member that fails in every group.
    """

    def __init__(self, folder: Path, broken: int | None = None) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.version = -1
        self.requests: list[GroupRequest] = []
        self._broken = broken

    async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
        missing = self.model.load_state_dict(tensors, strict=False).missing_keys
        assert missing in ([], ["lm_head.weight"]), missing
        self.version = version

    async def run(self, requests: Iterable[GroupRequest]) -> AsyncIterator[Group]:
        # Backwards, as groups may complete in any order.
        for request in reversed(list(requests)):
            self.requests.append(request)
            yield Group(request.id, request.task, [self._play(request, rollout) for rollout in request.rollouts()])

    def _play(self, request: GroupRequest, rollout: Any) -> Trajectory:
        number = int(request.task["number"])
        prompt = [1, 2, number]
        with torch.no_grad():
            logprobs = self.model(input_ids=torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
        generator = torch.Generator().manual_seed(rollout.seed)
        token = int(torch.multinomial(logprobs.exp(), 1, generator=generator))
        finished = segment([*prompt, token], [3], {3: float(logprobs[token])}, self.version)
        result = Trajectory(rollout.id, request.id, rollout.index, request.task, segments=[finished], turns=1)
        if rollout.index == self._broken:
            result.finish_reason, result.error = "error", "the sandbox is gone"
        else:
            result.reward = float(token == number + 1)
        return result


def bandit_tasks(count: int = 6) -> list[Task]:
    """Tasks that differ by their number."""
    return [Task(f"n{number}", {"number": number}) for number in range(3, 3 + count)]


def groups_of_a_step() -> list[Group]:
    """One group whose two members differ."""
    return [group([1.0, 0.0], [[segment([1, 2, 5], [2], {2: -2.5})], [segment([1, 2, 6], [2], {2: -2.5})]])]
