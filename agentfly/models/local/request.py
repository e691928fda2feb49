"""Turns a call into a sequence, or says in one line why it can't be."""

from __future__ import annotations

import secrets
from collections.abc import Sequence as Seq

from agentfly.errors import ModelError
from agentfly.models.engine import Sampling
from agentfly.models.local.sequence import Sequence
from agentfly.models.local.uniforms import SEED_MASK
from agentfly.models.prompts import check_prompt
from agentfly.models.stopping import StopText


def make_sequence(
    identity: int,
    prompt_ids: Seq[int],
    sampling: Sampling,
    *,
    session: str,
    priority: int,
    vocab_size: int,
    max_context: int,
    stop_text: StopText | None = None,
    streamed: bool = False,
) -> Sequence:
    """A sequence of a call.

    Args:
        stop_text: looks for the sampling's stop texts.
        streamed: its caller listens to it.

    Raises:
        ModelError: the prompt is empty, has ids outside the vocabulary or leaves no room in the
            context, or a sampling parameter is out of range.
    """
    tokens = check_prompt(prompt_ids, vocab_size, max_context)
    _check_sampling(sampling)
    seed = secrets.randbits(64) if sampling.seed is None else sampling.seed & SEED_MASK
    limit = min(len(tokens) + sampling.max_tokens, max_context)
    told = 0 if streamed else None
    return Sequence(identity, session, tokens, sampling, seed, limit, priority, stop_text=stop_text, told=told)


def _check_sampling(sampling: Sampling) -> None:
    for name, value, valid in (
        ("max_tokens", sampling.max_tokens, sampling.max_tokens >= 1),
        ("temperature", sampling.temperature, 0.0 <= sampling.temperature < float("inf")),
        ("top_p", sampling.top_p, 0.0 < sampling.top_p <= 1.0),
        ("top_k", sampling.top_k, sampling.top_k >= 0),
        ("min_p", sampling.min_p, 0.0 <= sampling.min_p <= 1.0),
    ):
        if not valid:
            raise ModelError(f"sampling parameter {name} is {value}, which is out of its range")
    if "" in sampling.stop:
        raise ModelError("sampling parameter stop holds an empty text, which would end every completion")
