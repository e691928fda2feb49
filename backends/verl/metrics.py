"""verl's numbers under the names that the native backend has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentfly.backends.native.statistics import rollout_metrics

from agentfly.rollout.trajectory import Group

_NAMES = {
    "actor/pg_loss": "loss",
    "actor/pg_clipfrac": "clip_fraction",
    "actor/ppo_kl": "approx_kl",
    "actor/entropy": "entropy",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "lr",
    "actor/kl_loss": "kl",
    "timing_s/gen": "seconds/rollouts",
    "timing_s/update_actor": "seconds/update",
    "timing_s/update_weights": "seconds/weights",
}


def step_metrics(groups: Sequence[Group], told: Mapping[str, float], version: int) -> dict[str, float]:
    """Metrics of a step: of its rollouts as the native backend has them, of the update by verl.

    Args:
        groups: the step's rollouts, failed ones included.
        told: verl's own metrics of the step.
        version: of the weights that were to learn from them.

    Returns:
        The native backend's names where verl has the number, and all of verl's own as `verl/<name>`.
    """
    metrics = rollout_metrics(groups, version)
    sampled = [segment.mask.sum() for group in groups for member in group.trainable for segment in member.segments]
    metrics["learned_tokens"] = float(sum(sampled))
    metrics |= {name: float(told[verls]) for verls, name in _NAMES.items() if verls in told}
    return metrics | {f"verl/{name}": float(value) for name, value in told.items() if not name.startswith("val-")}


def evaluation_metrics(groups: Sequence[Group], version: int) -> dict[str, float]:
    """Metrics of an evaluation's rollouts, as the native backend has them."""
    return {f"eval/{name}": value for name, value in rollout_metrics(groups, version).items()}
