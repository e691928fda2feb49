"""AdamW with a learning-rate schedule, clipped gradients, and a guard against numbers that are not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from agentfly.errors import AgentFlyError, ConfigError, first_line

Schedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class OptimizerOptions:
    """How weights are changed.

    Attributes:
        lr: peak learning rate.
        betas, weight_decay: of AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101).
        grad_clip: largest norm of the gradient of all weights; None is no limit.
        schedule: from the peak down to `final_fraction` of it, by a line or a half cosine; or `constant`.
        warmup_steps: steps over which the rate rises to its peak.
        final_fraction: of the peak, at the end.
        max_bad_steps: steps in a row whose loss or gradient isn't finite before it is an error.
    """

    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    grad_clip: float | None = 1.0
    schedule: Schedule = "constant"
    warmup_steps: int = 0
    final_fraction: float = 0.1
    max_bad_steps: int = 3


def lr_factor(step: int, total: int, options: OptimizerOptions) -> float:
    """The learning rate's fraction of its peak.

    Args:
        step: steps done, from 0.
        total: steps in all.
    """
    if step < options.warmup_steps:
        return (step + 1) / options.warmup_steps
    if options.schedule == "constant":
        return 1.0
    done = min(1.0, (step - options.warmup_steps) / max(1, total - options.warmup_steps))
    if options.schedule == "linear":
        shape = 1 - done
    elif options.schedule == "cosine":
        shape = 0.5 * (1 + math.cos(math.pi * done))
    else:
        raise ConfigError(f"unknown schedule {options.schedule!r}: choose constant, linear or cosine")
    return options.final_fraction + (1 - options.final_fraction) * shape


class Optimizer:
    """Applies gradients that were accumulated on the parameters.

    Args:
        parameters: of the model.
        options: rate, clipping, schedule.
        total_steps: length of the schedule.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], options: OptimizerOptions, total_steps: int) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._options = options
        self._total = total_steps
        self._adam = torch.optim.AdamW(
            self._parameters, lr=options.lr, betas=options.betas, weight_decay=options.weight_decay
        )
        self.steps = 0
        self.skipped = 0
        self._bad_in_a_row = 0

    def step(self, loss: float) -> dict[str, float]:
        """Change the weights by the gradients at hand, and clear these.

        A loss or gradient that isn't finite changes nothing but is counted.

        Args:
            loss: whose gradients they are.

        Returns:
            `grad_norm` (before clipping), `lr`, `skipped_steps` (so far).

        Raises:
            AgentFlyError: `max_bad_steps` were not finite in a row.
        """
        limit = math.inf if self._options.grad_clip is None else self._options.grad_clip
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, limit))
        rate = self._options.lr * lr_factor(self.steps, self._total, self._options)
        if math.isfinite(loss) and math.isfinite(norm):
            for group in self._adam.param_groups:
                group["lr"] = rate
            self._adam.step()
            self._bad_in_a_row = 0
        else:
            self.skipped += 1
            self._bad_in_a_row += 1
        self.steps += 1
        self.clear()
        if self._bad_in_a_row >= self._options.max_bad_steps:
            raise AgentFlyError(
                f"{self._bad_in_a_row} updates in a row had no finite gradient (the last: loss {loss}, norm {norm}): "
                "lower optimizer.lr, or resume from an earlier checkpoint"
            )
        return {"grad_norm": norm, "lr": rate, "skipped_steps": float(self.skipped)}

    def clear(self) -> None:
        """Drop the gradients."""
        self._adam.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """Everything that `load_state` needs."""
        return {
            "adam": self._adam.state_dict(),
            "steps": self.steps,
            "skipped": self.skipped,
            "bad_in_a_row": self._bad_in_a_row,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a state.

        Raises:
            ConfigError: it is none, or that of another model.
        """
        try:
            self._adam.load_state_dict(state["adam"])
            self.steps = state["steps"]
            self.skipped = state["skipped"]
            self._bad_in_a_row = state["bad_in_a_row"]
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"the optimiser can't go on from its saved state: {first_line(error)}") from error
