from __future__ import annotations

from pathlib import Path

import pytest
import torch
from agentfly.backends.native.aggregation import Aggregation
from agentfly.backends.native.learner import Learner, LearnerOptions, make_samples, score_groups
from agentfly.backends.native.losses import PolicyLoss
from agentfly.backends.native.statistics import rollout_metrics
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native.toys import group, segment, tiny_learner

from agentfly.errors import ConfigError
from agentfly.rollout.trajectory import Group


def groups() -> list[Group]:
    """Two groups, one of them with a trajectory of two segments and a member that failed."""
    mixed = group(
        [1.0, 0.0, 0.5, None],
        [
            [segment([1, 2, 3, 4, 5, 6], [2, 3, 5], {2: -2.0, 3: -2.5, 5: -2.2})],
            [segment([1, 2, 7], [2], {2: -2.4}), segment([1, 8, 9, 2], [1, 2], {1: -2.0, 2: -3.0})],
            [segment([1, 2, 9, 10], [2, 3], {2: -2.6, 3: -2.4})],
            [segment([1, 2, 11], [2], {2: -1.0})],
        ],
        "mixed",
    )
    equal = group([1.0, 1.0], [[segment([3, 4, 5], [2], {2: -2.0})], [segment([3, 4, 6], [2], {2: -2.0})]], "equal")
    return [mixed, equal]


def gradients(learner: Learner, options: LearnerOptions) -> list[torch.Tensor]:
    """Gradients of the first optimiser step."""
    fresh = Learner(learner.policy, learner.optimizer, options)
    fresh.optimizer.clear()
    assert fresh._accumulate(make_samples(score_groups(groups(), options.estimator), options), lambda: False)
    return [p.grad.clone() for p in learner.policy.model.parameters() if p.grad is not None]


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "constant"])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(budget=st.integers(1, 64))
def test_gradients_do_not_depend_on_the_micro_batches(
    tmp_path: Path, aggregation: Aggregation, ratio: str, budget: int
) -> None:
    learner = tiny_learner(tmp_path)
    loss = PolicyLoss(ratio=ratio)  # type: ignore[arg-type]
    whole = LearnerOptions(loss=loss, aggregation=aggregation, constant_length=8)
    cut = LearnerOptions(loss=loss, aggregation=aggregation, constant_length=8, max_batch_tokens=budget)
    for one, other in zip(gradients(learner, whole), gradients(learner, cut), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_segments_share_the_advantage_and_weights_count_their_tokens_together() -> None:
    options = LearnerOptions(estimator="dr_grpo", aggregation="sequence_mean")
    samples = make_samples(score_groups(groups()[:1], "dr_grpo"), options)
    assert [(sample.advantage, round(sample.weight, 6)) for sample in samples] == [
        (0.5, round(1 / 9, 6)),
        (-0.5, round(1 / 9, 6)),
        (-0.5, round(1 / 9, 6)),
    ]


def test_members_that_failed_are_no_part_of_the_comparison() -> None:
    scored = score_groups(groups()[:1], "dr_grpo")
    assert [item.advantage for item in scored] == [0.5, -0.5, 0.0]


def test_skipping_what_teaches_nothing_changes_no_weight() -> None:
    """Advantage 0 is left out of the forward pass yet counts in the mean, as the algorithms define it."""
    samples = make_samples(score_groups(groups(), "grpo"), LearnerOptions())
    sampled_tokens = 3 + 3 + 2 + 1 + 1
    assert len(samples) == 3
    assert {sample.weight for sample in samples} == {1 / sampled_tokens}
    held = LearnerOptions(loss=PolicyLoss(kl_coefficient=0.1))
    assert len(make_samples(score_groups(groups(), "grpo"), held)) == 6


def test_groups_without_a_difference_change_nothing(tmp_path: Path) -> None:
    learner = tiny_learner(tmp_path)
    before = learner.policy.weights()
    metrics = learner.update(groups()[1:])
    assert metrics == {"learned_tokens": 0.0}
    assert all((before[name] == array).all() for name, array in learner.policy.weights().items())


def test_an_update_raises_the_better_and_lowers_the_worse(tmp_path: Path) -> None:
    learner = tiny_learner(tmp_path)
    good, bad = segment([1, 2, 5], [2], {2: -2.5}), segment([1, 2, 6], [2], {2: -2.5})
    pair = [group([1.0, 0.0], [[good], [bad]])]

    def logits() -> torch.Tensor:
        with torch.no_grad():
            result: torch.Tensor = learner.policy.model(input_ids=torch.tensor([[1, 2]])).logits[0, -1].log_softmax(-1)
        return result

    before = logits()
    metrics = learner.update(pair)
    after = logits()
    assert after[5] > before[5]
    assert after[6] < before[6]
    assert metrics is not None
    assert metrics["learned_tokens"] == 2
    assert metrics["logprob_gap"] == pytest.approx(float((before[[5, 6]] + 2.5).abs().max()), abs=1e-4)


def test_epochs_and_minibatches_make_so_many_steps(tmp_path: Path) -> None:
    learner = tiny_learner(tmp_path, options=LearnerOptions(epochs=2, minibatches=3))
    learner.update(groups()[:1])
    # Three members in minibatches of one; the one of advantage 0 makes no step.
    assert learner.optimizer.steps == 4


def test_stopped_before_its_first_step_it_has_changed_nothing(tmp_path: Path) -> None:
    learner = tiny_learner(tmp_path)
    before = learner.policy.weights()
    assert learner.update(groups(), stopped=lambda: True) is None
    assert all((before[name] == array).all() for name, array in learner.policy.weights().items())
    assert all(parameter.grad is None for parameter in learner.policy.model.parameters())


def test_a_kl_term_needs_a_reference(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reference"):
        tiny_learner(tmp_path, options=LearnerOptions(loss=PolicyLoss(kl_coefficient=0.1)))


def test_the_reference_holds_the_policy_back(tmp_path: Path) -> None:
    """With a heavy KL term the policy moves less from its reference than without."""

    def moved(coefficient: float, folder: Path) -> float:
        learner = tiny_learner(folder)
        options = LearnerOptions(loss=PolicyLoss(kl_coefficient=coefficient))
        reference = tiny_learner(folder).policy
        held = Learner(learner.policy, learner.optimizer, options, reference)
        before = reference.weights()
        for _ in range(8):
            held.update(groups()[:1])
        return float(sum(abs(before[name] - array).sum() for name, array in held.policy.weights().items()))

    assert moved(50.0, tmp_path / "held") < moved(0.0, tmp_path / "free")


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"minibatches": 0}, {"aggregation": "constant"}, {"estimator": "x"}])
def test_senseless_options_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        LearnerOptions(**bad)  # type: ignore[arg-type]


def test_metrics_of_rollouts() -> None:
    metrics = rollout_metrics(groups(), version=3)
    assert metrics["rollouts"] == 6
    assert metrics["failed"] == 1
    assert metrics["reward"] == pytest.approx((1.0 + 0.0 + 0.5 + 1.0 + 1.0) / 5)
    assert metrics["groups_equal"] == 0.5
    assert metrics["staleness"] == 3
    assert metrics["finish/stop"] == 1
    assert metrics["sampled_tokens"] == 2.0
