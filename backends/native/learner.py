"""One update of the policy from groups of rollouts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from agentfly.backends.native.advantages import Estimator, group_advantages
from agentfly.backends.native.aggregation import Aggregation, token_weights
from agentfly.backends.native.batching import MicroBatch, Sample, micro_batches, trained_tokens
from agentfly.backends.native.losses import PolicyLoss, token_losses
from agentfly.backends.native.optimizer import Optimizer
from agentfly.backends.native.policy import Policy
from agentfly.backends.native.statistics import TokenStatistics

from agentfly.errors import ConfigError
from agentfly.rollout.trajectory import Group, Trajectory


@dataclass(frozen=True)
class LearnerOptions:
    """How a step's rollouts are learned from.

    Attributes:
        estimator: of advantages, within a group.
        loss: of a token.
        aggregation, constant_length: from tokens to the batch.
        epochs: passes over the rollouts.
        minibatches: optimiser steps in a pass.
        max_batch_tokens: padded tokens of one forward and backward pass.
    """

    estimator: Estimator = "grpo"
    loss: PolicyLoss = field(default_factory=PolicyLoss)
    aggregation: Aggregation = "token_mean"
    constant_length: int | None = None
    epochs: int = 1
    minibatches: int = 1
    max_batch_tokens: int = 16384

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches", "max_batch_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be at least 1")
        token_weights([1], self.aggregation, self.constant_length)
        group_advantages([0.0, 1.0], self.estimator)


@dataclass(frozen=True)
class Scored:
    """A trajectory and its advantage."""

    trajectory: Trajectory
    advantage: float


def score_groups(groups: Sequence[Group], estimator: Estimator) -> list[Scored]:
    """Advantages of everything that may be learned from.

    A member that a fault ended, or whose reward failed, is left out; its siblings are compared among
    themselves.
    """
    scored = []
    for group in groups:
        members = [member for member in group if member.trainable]
        rewards = [member.reward for member in members if member.reward is not None]
        advantages = group_advantages(rewards, estimator)
        scored += [Scored(member, float(value)) for member, value in zip(members, advantages, strict=True)]
    return scored


def make_samples(scored: Sequence[Scored], options: LearnerOptions) -> list[Sample]:
    """Segments with their advantages and weights.

    What can't contribute a gradient (advantage 0 and no KL term) has its part in the weights and is then left
    out, which saves its forward pass and changes nothing.
    """
    lengths = [sum(trained_tokens(segment) for segment in item.trajectory.segments) for item in scored]
    weights = token_weights(lengths, options.aggregation, options.constant_length)
    return [
        Sample(segment, item.advantage, weight)
        for item, weight in zip(scored, weights, strict=True)
        for segment in item.trajectory.segments
        if trained_tokens(segment) and (item.advantage != 0 or options.loss.kl_coefficient > 0)
    ]


class Learner:
    """Turns groups into updates of a policy.

    Args:
        policy: what learns.
        optimizer: of its parameters.
        options: the algorithm.
        reference: the policy that the KL term holds it to; needed with a KL coefficient.
    """

    def __init__(
        self, policy: Policy, optimizer: Optimizer, options: LearnerOptions, reference: Policy | None = None
    ) -> None:
        if options.loss.kl_coefficient > 0 and reference is None:
            raise ConfigError("a KL coefficient needs a reference policy")
        self.policy = policy
        self.optimizer = optimizer
        self._options = options
        self._reference = reference

    def update(
        self, groups: Sequence[Group], *, seed: int = 0, stopped: Callable[[], bool] = lambda: False
    ) -> dict[str, float] | None:
        """Learn from one step's groups.

        Args:
            groups: of rollouts; only trainable members count.
            seed: of the order in which minibatches are drawn.
            stopped: asked between batches; once true the update ends early, never in the middle of an
                optimiser step.

        Returns:
            Means over the tokens learned from, of the last optimiser step; `logprob_gap` is of the first,
            the largest |log-probability here - log-probability of the sampler|. None when it was stopped
            before anything was changed.

        Raises:
            AgentFlyError: the gradients are not finite again and again.
        """
        scored = score_groups(groups, self._options.estimator)
        metrics: dict[str, float] = {"learned_tokens": 0.0}
        for chunk in self._minibatches(scored, random.Random(seed)):
            samples = make_samples(chunk, self._options)
            if not samples:
                continue
            statistics = self._accumulate(samples, stopped)
            if statistics is None:
                self.optimizer.clear()
                return metrics if metrics["learned_tokens"] else None
            first_gap = metrics.get("logprob_gap", statistics.logprob_gap)
            learned = metrics["learned_tokens"] + statistics.tokens
            metrics = {**statistics.means(), **self.optimizer.step(statistics.loss)}
            metrics.update(logprob_gap=first_gap, learned_tokens=learned)
        return metrics

    def _minibatches(self, scored: list[Scored], rng: random.Random) -> Iterator[list[Scored]]:
        size = max(1, -(-len(scored) // self._options.minibatches))
        for _ in range(self._options.epochs):
            rng.shuffle(scored)
            for start in range(0, len(scored), size):
                yield scored[start : start + size]

    def _accumulate(self, samples: Sequence[Sample], stopped: Callable[[], bool]) -> TokenStatistics | None:
        """Gradients of one optimiser step; None when it was stopped before the end."""
        statistics = TokenStatistics()
        for batch in micro_batches(samples, self._options.max_batch_tokens):
            if stopped():
                return None
            self._backward(batch.to(self.policy.device), statistics)
        return statistics

    def _backward(self, batch: MicroBatch, statistics: TokenStatistics) -> None:
        scores = self.policy.score(batch)
        reference = None
        if self._reference is not None:
            with torch.no_grad():
                reference = self._reference.score(batch).logprobs
        tokens = token_losses(
            self._options.loss, scores.logprobs, batch.old_logprobs, batch.advantages, batch.rows, reference
        )
        loss = (tokens.losses * batch.weights).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        statistics.add(float(loss.detach()), batch, scores, tokens)
