"""Defaults by model size."""

from __future__ import annotations

from agentfly.models.local.tuning import default_prefill, default_threads


def test_a_tiny_model_takes_one_core_and_a_larger_one_half_of_them() -> None:
    assert default_threads(500_000, 16) == 1
    assert [default_threads(135_000_000, cores) for cores in (1, 2, 16)] == [1, 1, 8]


def test_steps_stay_short_on_a_cpu() -> None:
    assert default_prefill(500_000, on_cpu=True) == 2048
    assert default_prefill(135_000_000, on_cpu=True) == 222
    assert default_prefill(7_000_000_000, on_cpu=True) == 64
    assert default_prefill(7_000_000_000, on_cpu=False) == 2048
