"""Advantages of the rollouts of one group: how much better each did than its siblings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from agentfly.errors import ConfigError

Estimator = Literal["grpo", "dr_grpo", "rloo", "reinforce"]
ESTIMATORS: tuple[str, ...] = get_args(Estimator)

_EPSILON = 1e-6


def group_advantages(rewards: Sequence[float], estimator: Estimator = "grpo") -> npt.NDArray[np.float64]:
    """Advantages of one group.

    `grpo`: (r - mean) / (std + 1e-6) with the sample's standard deviation (Shao et al. 2024, DeepSeekMath,
    arXiv:2402.03300, section 4.1.2). `dr_grpo`: r - mean, since the division favours tasks that are
    nearly always or nearly never solved (Liu et al. 2025, arXiv:2503.20783, section 3.2). `rloo`: r minus
    the mean of the others (Ahmadian et al. 2024, arXiv:2402.14740, equation 9). `reinforce`: r itself
    (Williams 1992).

    Equal rewards give exactly 0 under the first three, and so does a group of one, which has nobody to be
    compared with.

    Args:
        rewards: of the group's members.

    Returns:
        float64[n], in the order of the rewards.

    Raises:
        ConfigError: no such estimator.
        ValueError: a reward is not finite.
    """
    values = np.asarray(rewards, np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"rewards must be finite, got {list(rewards)}")
    if estimator not in ESTIMATORS:
        raise ConfigError(f"unknown advantage estimator {estimator!r}: choose {', '.join(ESTIMATORS)}")
    if estimator == "reinforce":
        return values
    # Rounding of the mean must not turn equal rewards into tiny advantages, which the division would blow up.
    if len(values) < 2 or values.min() == values.max():
        return np.zeros_like(values)
    centred: npt.NDArray[np.float64] = values - values.mean()
    if estimator == "grpo":
        centred /= centred.std(ddof=1) + _EPSILON
    elif estimator == "rloo":
        centred *= len(values) / (len(values) - 1)
    return centred
