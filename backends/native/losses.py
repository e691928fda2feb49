"""Policy-gradient losses on flat arrays: one entry for each token that the policy sampled, no padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from agentfly.errors import ConfigError

Ratio = Literal["token", "sequence"]


@dataclass(frozen=True)
class PolicyLoss:
    """Which loss.

    Attributes:
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high] (Schulman et al. 2017,
            PPO, arXiv:1707.06347, equation 7; a clip_high above clip_low: Yu et al. 2025, DAPO,
            arXiv:2503.14476, section 3.1).
        dual_clip: for negative advantages the loss is at most dual_clip * |advantage| (Ye et al. 2020,
            arXiv:1912.09729, equation 5); above 1, None switches it off.
        ratio: `token`, or `sequence` for one length-normalised ratio a segment (Zheng et al. 2025, GSPO,
            arXiv:2507.18071, equation 7).
        kl_coefficient: weight of the KL divergence from the reference policy, by the estimator k3
            (Schulman 2020, "Approximating KL divergence"; DeepSeekMath, equation 4).
    """

    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float | None = None
    ratio: Ratio = "token"
    kl_coefficient: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.clip_low <= 1 or self.clip_high < 0:
            raise ConfigError(f"clip_low {self.clip_low} must lie in [0, 1], clip_high {self.clip_high} at or above 0")
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise ConfigError(f"dual_clip is {self.dual_clip}: it must be above 1, or null")
        if self.kl_coefficient < 0:
            raise ConfigError(f"kl_coefficient is {self.kl_coefficient}: it can't be negative")


@dataclass(frozen=True)
class TokenLosses:
    """Losses and ratios of tokens, all [n].

    Attributes:
        losses: to be weighted and summed.
        ratios: new over old probability, detached.
        clipped: where the clip took the gradient away.
    """

    losses: torch.Tensor
    ratios: torch.Tensor
    clipped: torch.Tensor


def token_losses(
    loss: PolicyLoss,
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    segments: torch.Tensor,
    reference: torch.Tensor | None = None,
) -> TokenLosses:
    """The loss of every sampled token.

    Args:
        loss: which one.
        logprobs: float[n] under the policy that learns; gradients flow through it alone.
        old_logprobs: float[n] under the policy that sampled.
        advantages: float[n].
        segments: int64[n], which segment of the batch the token belongs to, counted from 0.
        reference: float[n] under the reference policy; needed with a KL coefficient.
    """
    log_ratios = logprobs - old_logprobs
    if loss.ratio == "sequence":
        log_ratios = segment_means(log_ratios, segments)[segments]
    ratios = log_ratios.exp()
    free = ratios * advantages
    clipped = ratios.clamp(1 - loss.clip_low, 1 + loss.clip_high) * advantages
    losses = -torch.minimum(free, clipped)
    if loss.dual_clip is not None:
        losses = torch.where(advantages < 0, torch.minimum(losses, -loss.dual_clip * advantages), losses)
    if loss.kl_coefficient > 0:
        if reference is None:
            raise ValueError("a KL coefficient needs the reference policy's logprobs")
        losses = losses + loss.kl_coefficient * kl_k3(logprobs, reference)
    return TokenLosses(losses, ratios.detach(), (clipped < free).detach())


def kl_k3(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """KL(policy || reference) at sampled tokens: r - 1 - log r with r = reference / policy; never negative."""
    log_ratios = reference - logprobs
    return log_ratios.exp() - 1 - log_ratios


def segment_means(values: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """Mean of the values of each segment: float[n], int64[n] -> float[number of segments]."""
    count = int(segments.max()) + 1 if segments.numel() else 0
    sums = values.new_zeros(count).index_add(0, segments, values)
    sizes = values.new_zeros(count).index_add(0, segments, torch.ones_like(values))
    return sums / sizes.clamp(min=1)
