"""Warm-up: teach a policy from written conversations, by cross-entropy on what the assistant said."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentfly.backends.native.batching import Sample, micro_batches, trained_tokens
from agentfly.backends.native.optimizer import Optimizer, OptimizerOptions
from agentfly.backends.native.policy import Policy

from agentfly.errors import ConfigError
from agentfly.models.engine import Message
from agentfly.rollout.chat_format import ChatFormat
from agentfly.rollout.trajectory import Segment, SegmentBuilder


@dataclass(frozen=True)
class WarmUpOptions:
    """How long and how fast.

    Attributes:
        steps: optimiser steps.
        batch_size: segments in each.
        optimizer: rate, clipping and schedule.
        max_batch_tokens: padded tokens of one forward and backward pass.
        seed: of the order; segments come again when they have all been used.
    """

    steps: int
    batch_size: int = 64
    optimizer: OptimizerOptions = field(default_factory=lambda: OptimizerOptions(lr=1e-3, schedule="linear"))
    max_batch_tokens: int = 16384
    seed: int = 0


def encode_conversation(chat: ChatFormat, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Segment:
    """The tokens of a conversation as a rollout would have left them, the assistant's turns masked in.

    Args:
        chat: the model's format.
        messages: the content of the assistant's is the text as the model writes it, tool calls in it.
        tools: schemas that the model is shown.

    Raises:
        ConfigError: no assistant message at all, or the format can't be bridged to the next turn.
    """
    first = next((index for index, message in enumerate(messages) if message["role"] == "assistant"), None)
    if first is None:
        raise ConfigError("a conversation without an assistant's message teaches nothing")
    builder = SegmentBuilder()
    builder.add_context(chat.render(messages[:first], tools))
    index = first
    while index < len(messages):
        prompt = list(builder.ids)
        completion = [*chat.encode(messages[index]["content"]), chat.stop_token_ids[0]]
        builder.add_sampled(completion, [0.0] * len(completion), [0] * len(completion))
        following = _until_assistant(messages, index + 1)
        if following == len(messages):
            break
        extended = chat.bridge(prompt, completion, messages[index + 1 : following], tools, messages[: index + 1])
        if extended is None:
            raise ConfigError("the chat format can't go on from an assistant's turn without rendering it again")
        builder.add_context(extended[len(builder.ids) :])
        index = following
    return builder.build()


def warm_up(
    policy: Policy,
    segments: Sequence[Segment],
    options: WarmUpOptions,
    *,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> float:
    """Train the policy in place; returns the loss of the last step (nats a token).

    Args:
        policy: what learns.
        segments: from `encode_conversation`.
        options: how long and how fast.
        on_step: is told the steps done and the loss.

    Raises:
        ConfigError: there are no segments.
        AgentFlyError: the gradients are not finite again and again.
    """
    if not segments:
        raise ConfigError("there are no conversations to warm up on")
    optimizer = Optimizer(policy.model.parameters(), options.optimizer, options.steps)
    rng = random.Random(options.seed)
    waiting: list[Segment] = []
    loss = 0.0
    for step in range(options.steps):
        while len(waiting) < options.batch_size:
            waiting += rng.sample(segments, len(segments))
        batch, waiting = waiting[: options.batch_size], waiting[options.batch_size :]
        loss = _accumulate(policy, batch, options.max_batch_tokens)
        optimizer.step(loss)
        on_step(step + 1, loss)
    return loss


def _accumulate(policy: Policy, segments: Sequence[Segment], max_tokens: int) -> float:
    weight = 1 / max(1, sum(trained_tokens(segment) for segment in segments))
    total = 0.0
    for batch in micro_batches([Sample(segment, 0.0, weight) for segment in segments], max_tokens):
        batch = batch.to(policy.device)
        loss = -(policy.score(batch).logprobs * batch.weights).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


def _until_assistant(messages: Sequence[Message], start: int) -> int:
    """Index of the next assistant's message, or the end."""
    indices = range(start, len(messages))
    return next((index for index in indices if messages[index]["role"] == "assistant"), len(messages))
