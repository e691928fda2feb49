from __future__ import annotations

import math

import pytest
import torch
from agentfly.backends.native.losses import PolicyLoss, kl_k3, segment_means, token_losses

from agentfly.errors import ConfigError


def losses(
    loss: PolicyLoss, ratios: list[float], advantages: list[float], segments: list[int] | None = None
) -> tuple[list[float], list[float], list[bool]]:
    """Losses, gradients with respect to the logprobs, and clipping, of tokens with these ratios."""
    logprobs = torch.tensor([math.log(ratio) for ratio in ratios], dtype=torch.float64, requires_grad=True)
    old = torch.zeros(len(ratios), dtype=torch.float64)
    result = token_losses(
        loss,
        logprobs,
        old,
        torch.tensor(advantages, dtype=torch.float64),
        torch.tensor(segments or [0] * len(ratios)),
    )
    result.losses.sum().backward()
    assert logprobs.grad is not None
    return result.losses.tolist(), logprobs.grad.tolist(), result.clipped.tolist()


def test_ppo_clip_by_hand() -> None:
    values, gradients, clipped = losses(
        PolicyLoss(clip_low=0.2, clip_high=0.3), [1.0, 1.5, 0.5, 1.5, 0.5], [2.0, 2.0, 2.0, -2.0, -2.0]
    )
    assert values == pytest.approx([-2.0, -2.6, -1.0, 3.0, 1.6])
    # Where the clip binds there is no gradient, elsewhere it is -ratio * advantage.
    assert gradients == pytest.approx([-2.0, 0.0, -1.0, 3.0, 0.0])
    assert clipped == [False, True, False, False, True]


def test_dual_clip_bounds_the_loss_of_a_token_that_became_likely_and_was_bad() -> None:
    values, gradients, _ = losses(PolicyLoss(dual_clip=3.0), [10.0, 2.0, 10.0], [-1.0, -1.0, 1.0])
    assert values == pytest.approx([3.0, 2.0, -1.28])
    assert gradients == pytest.approx([0.0, 2.0, 0.0])


def test_sequence_ratio_is_the_geometric_mean_of_the_segment() -> None:
    values, gradients, _ = losses(
        PolicyLoss(clip_low=0.5, clip_high=0.5, ratio="sequence"), [1.0, 1.44, 0.81], [1.0, 1.0, 1.0], [0, 0, 1]
    )
    assert values == pytest.approx([-1.2, -1.2, -0.81])
    # d/dlogp of -2 * exp(mean logp) over two tokens is -ratio for each of them.
    assert gradients == pytest.approx([-1.2, -1.2, -0.81])


def test_sequence_ratio_clips_whole_segments() -> None:
    _, gradients, clipped = losses(
        PolicyLoss(clip_low=0.1, clip_high=0.1, ratio="sequence"), [1.0, 1.44, 1.05], [1.0, 1.0, 1.0], [0, 0, 1]
    )
    assert clipped == [True, True, False]
    assert gradients == pytest.approx([0.0, 0.0, -1.05])


def test_k3_by_hand() -> None:
    logprobs, reference = torch.tensor([0.0, 0.0]).log_softmax(-1), torch.tensor([math.log(0.25), math.log(0.75)])
    assert kl_k3(logprobs, reference).tolist() == pytest.approx([0.5 - 1 - math.log(0.5), 1.5 - 1 - math.log(1.5)])


def test_k3_averages_to_the_kl_divergence() -> None:
    policy, reference = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.5, 0.3])
    estimate = (policy * kl_k3(policy.log(), reference.log())).sum()
    assert float(estimate) == pytest.approx(float((policy * (policy / reference).log()).sum()), abs=1e-6)


def test_kl_term_is_added_with_its_weight() -> None:
    zero, reference = torch.zeros(1), torch.tensor([-0.5])
    plain = token_losses(PolicyLoss(), zero, zero, torch.ones(1), torch.zeros(1, dtype=torch.long))
    held = token_losses(
        PolicyLoss(kl_coefficient=0.1), zero, zero, torch.ones(1), torch.zeros(1, dtype=torch.long), reference
    )
    assert float(held.losses - plain.losses) == pytest.approx(0.1 * (math.exp(-0.5) - 1 + 0.5), abs=1e-6)


def test_kl_without_a_reference_is_an_error() -> None:
    zero = torch.zeros(1)
    with pytest.raises(ValueError, match="reference"):
        token_losses(PolicyLoss(kl_coefficient=0.1), zero, zero, zero, torch.zeros(1, dtype=torch.long))


def test_segment_means() -> None:
    means = segment_means(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1, 0, 1]))
    assert means.tolist() == [2.0, 3.5]
    assert segment_means(torch.zeros(0), torch.zeros(0, dtype=torch.long)).tolist() == []


@pytest.mark.parametrize(
    "bad", [{"clip_low": -0.1}, {"clip_low": 1.5}, {"clip_high": -1.0}, {"dual_clip": 0.5}, {"kl_coefficient": -1.0}]
)
def test_senseless_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        PolicyLoss(**bad)  # type: ignore[arg-type]
