"""What an update and a step's rollouts looked like, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from agentfly.backends.native.batching import MicroBatch
from agentfly.backends.native.logprobs import TokenScores
from agentfly.backends.native.losses import TokenLosses

from agentfly.rollout.trajectory import Group, Trajectory, mean_metrics


class TokenStatistics:
    """Sums over the micro-batches of one optimiser step."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.tokens = 0
        self.logprob_gap = 0.0
        self._sums = {"clip_fraction": 0.0, "approx_kl": 0.0, "entropy": 0.0}

    @torch.no_grad()
    def add(self, loss: float, batch: MicroBatch, scores: TokenScores, tokens: TokenLosses) -> None:
        """Count one micro-batch."""
        self.loss += loss
        self.tokens += len(batch.targets)
        log_ratios = scores.logprobs.detach() - batch.old_logprobs
        self.logprob_gap = max(self.logprob_gap, float(log_ratios.abs().max()))
        self._sums["clip_fraction"] += float(tokens.clipped.sum())
        self._sums["entropy"] += float(scores.entropies.sum())
        # KL(old || new) by the estimator k3, from samples of the old policy.
        self._sums["approx_kl"] += float((log_ratios.exp() - 1 - log_ratios).sum())

    def means(self) -> dict[str, float]:
        """`loss`, and means over tokens of `clip_fraction`, `approx_kl`, `entropy`."""
        return {"loss": self.loss} | {name: total / max(1, self.tokens) for name, total in self._sums.items()}


def rollout_metrics(groups: Sequence[Group], version: int) -> dict[str, float]:
    """Numbers of one step's rollouts.

    Args:
        groups: all of the step's, failed members included.
        version: of the policy that is about to learn from them.

    Returns:
        `reward` and its spread over trainable rollouts, `groups_equal` (fraction of groups that teach nothing
        because all rewards are the same), turns, tool calls, lengths, finish reasons as fractions, mean seconds,
        `staleness` (versions between sampling and learning), and the means of the rollouts' own metrics.
    """
    members = [member for group in groups for member in group]
    good = [member for member in members if member.trainable]
    metrics = {"rollouts": float(len(members)), "failed": float(len(members) - len(good))}
    if not good:
        return metrics
    rewards = np.array([member.reward for member in good], np.float64)
    metrics |= {"reward": float(rewards.mean()), "reward_std": float(rewards.std())}
    metrics["groups_equal"] = float(np.mean([_all_equal(group) for group in groups]))
    metrics["turns"] = _mean([member.turns for member in good])
    metrics["tool_calls"] = _mean([member.tool_calls for member in good])
    metrics["tool_errors"] = _mean([member.tool_errors for member in good])
    metrics["truncated"] = _mean([member.truncated for member in good])
    metrics["tokens"] = _mean([sum(len(segment) for segment in member.segments) for member in good])
    metrics["sampled_tokens"] = _mean([sum(int(s.mask.sum()) for s in member.segments) for member in good])
    metrics["staleness"] = _staleness(good, version)
    for reason, count in Counter(member.finish_reason for member in members).items():
        metrics[f"finish/{reason}"] = count / len(members)
    for name in ("waiting", "generating", "tools", "reward", "total"):
        metrics[f"seconds/{name}"] = _mean([getattr(member.timing, name) for member in good])
    return metrics | {f"agent/{name}": value for name, value in mean_metrics(good).items()}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _all_equal(group: Group) -> bool:
    return len({member.reward for member in group if member.trainable}) <= 1


def _staleness(members: Sequence[Trajectory], version: int) -> float:
    sampled = [segment.versions[segment.mask] for member in members for segment in member.segments]
    versions = np.concatenate(sampled) if sampled else np.zeros(0, np.int32)
    return float((version - versions).mean()) if len(versions) else 0.0
