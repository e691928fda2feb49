from __future__ import annotations

import math

import numpy as np
import pytest
from agentfly.backends.native.advantages import group_advantages
from hypothesis import given
from hypothesis import strategies as st

from agentfly.errors import ConfigError

REWARDS = st.lists(st.floats(-100, 100), min_size=1, max_size=16)


def test_grpo_by_hand() -> None:
    # mean 0.25; sample variance (3 * 0.0625 + 0.5625) / 3 = 0.25, so std 0.5.
    assert group_advantages([1, 0, 0, 0], "grpo") == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-5)


def test_dr_grpo_by_hand() -> None:
    assert group_advantages([1, 0, 0, 0], "dr_grpo") == pytest.approx([0.75, -0.25, -0.25, -0.25])


def test_rloo_by_hand() -> None:
    # Each against the mean of the other two: 3 - 1.5, 2 - 2, 1 - 2.5.
    assert group_advantages([3, 2, 1], "rloo") == pytest.approx([1.5, 0.0, -1.5])


def test_reinforce_is_the_reward() -> None:
    assert list(group_advantages([2.0, -1.0], "reinforce")) == [2.0, -1.0]


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
@given(reward=st.floats(-1e6, 1e6), size=st.integers(1, 9))
def test_equal_rewards_and_lone_members_teach_nothing(estimator: str, reward: float, size: int) -> None:
    assert list(group_advantages([reward] * size, estimator)) == [0.0] * size  # type: ignore[arg-type]


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
@given(rewards=REWARDS)
def test_advantages_are_finite_and_sum_to_zero(estimator: str, rewards: list[float]) -> None:
    advantages = group_advantages(rewards, estimator)  # type: ignore[arg-type]
    assert np.isfinite(advantages).all()
    assert advantages.sum() == pytest.approx(0, abs=1e-6)


@given(rewards=REWARDS, shift=st.floats(-10, 10))
def test_a_shift_of_all_rewards_changes_nothing(rewards: list[float], shift: float) -> None:
    shifted = group_advantages([reward + shift for reward in rewards], "dr_grpo")
    assert shifted == pytest.approx(group_advantages(rewards, "dr_grpo"), abs=1e-9)


def test_an_empty_group_has_no_advantages() -> None:
    assert len(group_advantages([], "grpo")) == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rewards_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        group_advantages([1.0, bad], "grpo")


def test_an_unknown_estimator_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'gae'.*choose grpo"):
        group_advantages([1.0, 0.0], "gae")  # type: ignore[arg-type]
