from __future__ import annotations

import pytest
from agentfly.backends.native.aggregation import token_weights
from hypothesis import given
from hypothesis import strategies as st

from agentfly.errors import ConfigError

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=8)


def test_by_hand() -> None:
    assert token_weights([1, 3], "token_mean") == [0.25, 0.25]
    assert token_weights([1, 3], "sequence_mean") == pytest.approx([1 / 2, 1 / 6])
    assert token_weights([1, 3], "constant", 10) == pytest.approx([1 / 20, 1 / 20])


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
@given(lengths=LENGTHS)
def test_means_weigh_one_in_all(aggregation: str, lengths: list[int]) -> None:
    weights = token_weights(lengths, aggregation)  # type: ignore[arg-type]
    assert sum(weight * length for weight, length in zip(weights, lengths, strict=True)) == pytest.approx(1)


def test_trajectories_without_sampled_tokens_weigh_nothing() -> None:
    assert token_weights([0, 2], "sequence_mean")[0] == 0.0
    assert token_weights([0], "token_mean") == [0.0]
    assert token_weights([], "token_mean") == []


def test_a_constant_needs_its_length() -> None:
    with pytest.raises(ConfigError, match="length"):
        token_weights([1], "constant")


def test_an_unknown_one_is_named() -> None:
    with pytest.raises(ConfigError, match="'median'"):
        token_weights([1], "median")  # type: ignore[arg-type]
