"""The learning curve, as it grows and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.progress import Progress, TaskID


class CurveSink:
    """Collects rewards, and shows them on a progress bar.

    Attributes:
        training: step and mean reward of its rollouts.
        held_out: step and mean reward on the held-out tasks.
    """

    def __init__(self, progress: Progress, bar: TaskID) -> None:
        self.training: list[tuple[int, float]] = []
        self.held_out: list[tuple[int, float]] = []
        self._progress = progress
        self._bar = bar

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a step or an evaluation."""
        if "reward" in metrics:
            self.training.append((step, metrics["reward"]))
            self._progress.update(self._bar, completed=step, figure=f"reward {metrics['reward']:.3f}")
        if "eval/reward" in metrics:
            self.held_out.append((step, metrics["eval/reward"]))
            self._progress.console.print(f"  step {step:3d}: held-out reward {metrics['eval/reward']:.3f}")

    def close(self) -> None:
        """Nothing to close."""


def draw(curve: CurveSink, place: Path) -> None:
    """Write the curve as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(*zip(*curve.training, strict=True), color="tab:blue", alpha=0.5, label="training tasks")
    axes.plot(*zip(*curve.held_out, strict=True), color="tab:orange", marker="o", label="held-out tasks")
    axes.set(
        xlabel="training step", ylabel="mean reward", ylim=(0, 1), title="file_math: a tiny model learns its tools"
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(place, dpi=120)
    plt.close(figure)
