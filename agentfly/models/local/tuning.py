"""Defaults that depend on the model's size. Pure."""

from __future__ import annotations

# Below this one core is as fast as several: the operations are too short to be shared out.
_TINY_PARAMETERS = 50_000_000
_PREFILL_FLOPS = 6e10
_MIN_PREFILL, _MAX_PREFILL = 64, 2048


def default_threads(parameters: int, cores: int) -> int:
    """Cores that an operation may use on a CPU.

    Half of them at most: rollout workers, tools and perhaps a trainer share the machine, and
    threads that wait for a core make each other ten times slower (measured: 135M weights, two
    threads on two busy cores).
    """
    return 1 if parameters < _TINY_PARAMETERS else max(1, cores // 2)


def default_prefill(parameters: int, on_cpu: bool) -> int:
    """Prompt tokens in one step, such that it takes about a second on one core at most.

    Running calls, cancellations and new weights wait for a step to end. A token costs about two
    operations for each weight.
    """
    if not on_cpu:
        return _MAX_PREFILL
    return int(min(_MAX_PREFILL, max(_MIN_PREFILL, _PREFILL_FLOPS / (2 * parameters))))
