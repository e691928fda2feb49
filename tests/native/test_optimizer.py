from __future__ import annotations

import math

import pytest
import torch
from agentfly.backends.native.optimizer import Optimizer, OptimizerOptions, Schedule, lr_factor

from agentfly.errors import AgentFlyError, ConfigError


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1, 1, 1, 1, 1]),
        ("linear", [1, 0.775, 0.55, 0.325, 0.1]),
        ("cosine", [1, 0.8682, 0.55, 0.2318, 0.1]),
    ],
)
def test_schedules_by_hand(schedule: Schedule, expected: list[float]) -> None:
    options = OptimizerOptions(schedule=schedule, final_fraction=0.1)
    assert [lr_factor(step, 4, options) for step in range(5)] == pytest.approx(expected, abs=1e-4)


def test_warm_up_rises_to_the_peak() -> None:
    options = OptimizerOptions(schedule="linear", warmup_steps=4, final_fraction=0.0)
    factors = [lr_factor(step, 8, options) for step in range(9)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0])


def test_an_unknown_schedule_is_named() -> None:
    with pytest.raises(ConfigError, match="'step'"):
        lr_factor(1, 2, OptimizerOptions(schedule="step"))  # type: ignore[arg-type]


def optimizer(options: OptimizerOptions) -> tuple[torch.nn.Parameter, Optimizer]:
    weight = torch.nn.Parameter(torch.zeros(2))
    return weight, Optimizer([weight], options, 10)


def test_gradients_are_clipped_and_their_norm_told() -> None:
    weight, adam = optimizer(OptimizerOptions(lr=0.1, grad_clip=1.0))
    weight.grad = torch.tensor([3.0, 4.0])
    metrics = adam.step(0.5)
    assert metrics["grad_norm"] == pytest.approx(5.0)
    # Adam's first step moves by the rate, whatever the gradient's size.
    assert weight.tolist() == pytest.approx([-0.1, -0.1], abs=1e-6)
    assert weight.grad is None


@pytest.mark.parametrize(("loss", "gradient"), [(math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0), (1.0, math.inf)])
def test_a_step_that_is_not_finite_changes_nothing_and_is_counted(loss: float, gradient: float) -> None:
    weight, adam = optimizer(OptimizerOptions(lr=0.1))
    weight.grad = torch.tensor([gradient, 1.0])
    assert adam.step(loss)["skipped_steps"] == 1
    assert weight.tolist() == [0.0, 0.0]


def test_several_in_a_row_are_an_error_but_not_with_a_good_one_between() -> None:
    weight, adam = optimizer(OptimizerOptions(lr=0.1, max_bad_steps=2))
    for loss in (math.nan, 1.0, math.nan):
        weight.grad = torch.ones(2)
        adam.step(loss)
    weight.grad = torch.ones(2)
    with pytest.raises(AgentFlyError, match=r"2 updates in a row .* lower optimizer.lr"):
        adam.step(math.nan)


def test_state_goes_on_exactly() -> None:
    torch.manual_seed(0)
    gradients = torch.randn(6, 2)
    straight, adam = optimizer(OptimizerOptions(lr=0.1, schedule="cosine"))
    for gradient in gradients:
        straight.grad = gradient.clone()
        adam.step(0.0)
    first, before = optimizer(OptimizerOptions(lr=0.1, schedule="cosine"))
    for gradient in gradients[:3]:
        first.grad = gradient.clone()
        before.step(0.0)
    second, after = optimizer(OptimizerOptions(lr=0.1, schedule="cosine"))
    second.data.copy_(first.data)
    after.load_state(before.state())
    for gradient in gradients[3:]:
        second.grad = gradient.clone()
        after.step(0.0)
    assert torch.equal(straight, second)
