"""From losses of tokens to the loss of a batch: a weight for every token.

Weights depend on the whole batch, so that cutting it into micro-batches changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from agentfly.errors import ConfigError

Aggregation = Literal["token_mean", "sequence_mean", "constant"]
AGGREGATIONS: tuple[str, ...] = get_args(Aggregation)


def token_weights(lengths: Sequence[int], aggregation: Aggregation, constant: int | None = None) -> list[float]:
    """The weight of each token of each trajectory; the loss is the weighted sum.

    `token_mean`: every token of the batch counts the same (DAPO, arXiv:2503.14476, section 3.3).
    `sequence_mean`: every trajectory counts the same (DeepSeekMath, arXiv:2402.03300, equation 3).
    `constant`: the sum divided by the number of trajectories times a constant length, which favours
    neither short nor long ones (Dr. GRPO, arXiv:2503.20783, section 3.2).

    Args:
        lengths: sampled tokens of each trajectory, over all its segments.
        aggregation: which of the above.
        constant: the length of `constant`; the most tokens that a trajectory may sample.

    Raises:
        ConfigError: no such aggregation, or `constant` without its length.
    """
    count = len(lengths)
    if aggregation == "token_mean":
        total = sum(lengths)
        return [1 / total if total else 0.0] * count
    if aggregation == "sequence_mean":
        return [1 / (count * length) if length else 0.0 for length in lengths]
    if aggregation == "constant":
        if constant is None or constant < 1:
            raise ConfigError(f"aggregation `constant` needs a length of at least 1, got {constant}")
        return [1 / (count * constant)] * count
    raise ConfigError(f"unknown aggregation {aggregation!r}: choose {', '.join(AGGREGATIONS)}")
