"""Log-probabilities of chosen tokens without ever holding the logits of the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch.utils.checkpoint import checkpoint

Head = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class TokenScores:
    """Scores of tokens.

    Attributes:
        logprobs: float32[n], with gradients where the model has them.
        entropies: float32[n], of the whole distribution at each place, in nats; detached.
    """

    logprobs: torch.Tensor
    entropies: torch.Tensor


def score_tokens(
    hidden: torch.Tensor,
    targets: torch.Tensor,
    head: Head,
    *,
    vocab_size: int,
    temperature: float = 1.0,
    max_logits: int = 1 << 26,
) -> TokenScores:
    """Score targets from the hidden states that predict them.

    Logits are made for a slice of the places at a time and, where there is more than one slice, made
    again for the backward pass: memory is bounded by `max_logits`, not by places times vocabulary.

    Args:
        hidden: float[n, width].
        targets: int64[n].
        head: hidden states to logits, float[m, width] -> float[m, vocab_size].
        vocab_size: of the head.
        temperature: logits are divided by it, as they are when tokens are sampled.
        max_logits: most logits held at once.
    """
    rows = max(1, max_logits // vocab_size)

    def score(states: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return _score(head(states), chosen, temperature)

    if len(targets) <= rows:
        return TokenScores(*score(hidden, targets))
    parts = [
        cast("tuple[torch.Tensor, torch.Tensor]", checkpoint(score, states, chosen, use_reentrant=False))
        for states, chosen in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True)
    ]
    return TokenScores(torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]))


def _score(logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    logits = logits.float() / temperature
    normalisers = logits.logsumexp(-1)
    logprobs = logits.gather(-1, targets[:, None]).squeeze(-1) - normalisers
    with torch.no_grad():
        probabilities = (logits - normalisers[:, None]).exp()
        entropies = normalisers - (probabilities * logits).sum(-1)
    return logprobs, entropies
