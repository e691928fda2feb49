"""Draws tokens, and records their log-probabilities under the distribution that they were drawn from."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from agentfly.models.engine import Sampling

_BLOCK = 512


@dataclass(frozen=True)
class Params:
    """Sampling parameters of a batch, as tensors over its `[n]` rows.

    Attributes:
        temperature: 1 for greedy rows.
        greedy: rows of temperature 0, or None when there is none.
        truncated: indices of rows with a top-k, top-p or min-p, or None when there is none.
        top_k, top_p, min_p: of the truncated rows only.
    """

    temperature: torch.Tensor | None
    greedy: torch.Tensor | None
    truncated: torch.Tensor | None
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor

    @classmethod
    def of(cls, samplings: Seq[Sampling], device: torch.device) -> Params:
        """Collect the parameters of the rows of a batch."""
        greedy = [sampling.temperature == 0.0 for sampling in samplings]
        temperature = [sampling.temperature or 1.0 for sampling in samplings]
        cut = [i for i, sampling in enumerate(samplings) if not greedy[i] and _truncates(sampling)]
        return cls(
            torch.tensor(temperature, device=device).unsqueeze(1) if set(temperature) != {1.0} else None,
            torch.tensor(greedy, device=device) if any(greedy) else None,
            torch.tensor(cut, device=device) if cut else None,
            torch.tensor([samplings[i].top_k for i in cut], device=device),
            torch.tensor([samplings[i].top_p for i in cut], device=device),
            torch.tensor([samplings[i].min_p for i in cut], device=device),
        )


def _truncates(sampling: Sampling) -> bool:
    return sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0


def draw(logits: torch.Tensor, params: Params, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token for each row, by inverting the cumulative distribution at a given uniform number.

    Temperature first, then top-k, then top-p and min-p of what top-k left.

    Args:
        logits: `[n, vocabulary]`.
        params: of the n rows.
        uniform: `[n]`, float64, in [0, 1).

    Returns:
        Tokens `[n]` int64 and log-probabilities `[n]` float32; 0 for greedy rows.
    """
    logits = logits.float()
    scaled = logits if params.temperature is None else logits / params.temperature
    logprobs = scaled.log_softmax(-1)
    if params.truncated is not None:
        rows = logprobs[params.truncated]
        kept = rows.masked_fill(~_kept(rows, params), float("-inf")).log_softmax(-1)
        logprobs = logprobs.index_copy(0, params.truncated, kept)
    tokens = invert(logprobs.exp(), uniform)
    chosen = logprobs.gather(1, tokens.unsqueeze(1)).squeeze(1)
    if params.greedy is not None:
        tokens = torch.where(params.greedy, logits.argmax(-1), tokens)
        # Times zero, not zero: what is not a finite number must stay visible.
        chosen = torch.where(params.greedy, chosen * 0.0, chosen)
    return tokens, chosen


def _kept(logprobs: torch.Tensor, params: Params) -> torch.Tensor:
    """Which tokens of the truncated rows may be drawn, as a mask `[rows, vocabulary]`."""
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    vocabulary = logprobs.shape[1]
    top_k = torch.where(params.top_k > 0, params.top_k, vocabulary).clamp(max=vocabulary).unsqueeze(1)
    kept = torch.arange(vocabulary, device=logprobs.device) < top_k
    probs = ordered.masked_fill(~kept, float("-inf")).softmax(-1)
    # A token stays while those before it have not reached top-p: the smallest set that does.
    before = probs.double().cumsum(-1) - probs
    kept &= (before < params.top_p.unsqueeze(1)) & (probs >= params.min_p.unsqueeze(1) * probs[:, :1])
    kept[:, 0] = True
    return torch.zeros_like(kept).scatter_(1, order, kept)


def invert(probs: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The token at which the cumulative probability passes `uniform`; never one of probability 0.

    Args:
        probs: `[n, vocabulary]`; need not sum to 1 exactly.
        uniform: `[n]`, float64, in [0, 1).

    Returns:
        Tokens `[n]`.
    """
    rows, vocabulary = probs.shape
    if vocabulary <= 8 * _BLOCK:
        return _search(probs.double(), uniform)[0]
    # A large vocabulary in two levels, which spares a float64 cumulative sum over all of it.
    padded = torch.nn.functional.pad(probs, (0, -vocabulary % _BLOCK)).view(rows, -1, _BLOCK)
    block, inside = _search(padded.sum(-1, dtype=torch.float64), uniform)
    chosen = padded[torch.arange(rows, device=probs.device), block].double()
    return block * _BLOCK + _search(chosen, inside)[0]


def _search(weights: torch.Tensor, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Index that `uniform` falls on, by weight, and where within its weight it falls, in [0, 1)."""
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1:]
    # Strictly below the total, whatever the rounding, so that an index exists and its weight is positive.
    target = torch.minimum(uniform.unsqueeze(1) * total, torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, target, right=True).clamp_(max=weights.shape[1] - 1)
    weight = weights.gather(1, index)
    inside = (target - (cumulative.gather(1, index) - weight)) / weight
    return index.squeeze(1), inside.clamp_(0.0, 1.0 - 2.0**-53).squeeze(1)
