"""The demo from its start to its figures."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from transformers.utils import logging as transformers_logging

from agentfly.cli.demo.curve import CurveSink, draw
from agentfly.cli.demo.model import FAMILY, WARM_UP, make_model
from agentfly.cli.interrupt import Interrupted, run_interruptible
from agentfly.envs.file_math.agent import agent
from agentfly.envs.file_math.tasks import make_tasks
from agentfly.errors import ConfigError
from agentfly.training.job import ModelConfig, OptimizerConfig, RolloutConfig, TrainingJob
from agentfly.training.loggers import JsonlSink, MetricsLogger
from agentfly.training.run import atrain

_MARK = ".agentfly-demo"


def run_demo(output: Path, *, seed: int, steps: int) -> None:
    """Make a model, warm it up, train it by GRPO on tools in sandboxes, and show what came of it.

    Raises:
        ConfigError: the output folder holds something that isn't an earlier demo.
    """
    started = time.monotonic()
    _empty(output)
    torch.set_num_threads(1)  # of so small a model more threads only wait for each other
    transformers_logging.disable_progress_bar()
    console = Console()
    console.print(f"An agent with the tools {', '.join(tool.name for tool in agent.tools)} learns to answer questions")
    console.print("about files in a sandbox. Its model has random weights until the warm-up is through.\n")
    columns = (TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[figure]}"), console=console) as progress:
        bar = progress.add_task("warm-up", total=WARM_UP.steps, figure="making the model")
        make_model(
            output / "model",
            agent,
            seed,
            on_step=lambda step, loss: progress.update(bar, completed=step, figure=f"loss {loss:.3f}"),
        )
        curve = CurveSink(progress, progress.add_task("GRPO", total=steps, figure="starting Ray"))
        try:
            result = run_interruptible(
                atrain(_job(output, seed, steps), logger=MetricsLogger([curve, JsonlSink(output)]))
            )
        except Interrupted:
            raise typer.Exit(130) from None
    draw(curve, output / "curve.png")
    console.print(f"\nheld-out reward before {curve.held_out[0][1]:.3f}")
    console.print(f"held-out reward after {curve.held_out[-1][1]:.3f}")
    console.print(f"\n{time.monotonic() - started:.0f} seconds. What is left of it:")
    for name, place in (
        ("learning curve", output / "curve.png"),
        ("trajectories", output / "trajectories.jsonl"),
        ("metrics", output / "metrics.jsonl"),
        ("checkpoint", result.checkpoint),
    ):
        console.print(f"  {name:15} {place}", soft_wrap=True, highlight=False)


def _job(output: Path, seed: int, steps: int) -> TrainingJob:
    return TrainingJob(
        agent=agent,
        tasks=make_tasks(2048, seed=seed),
        eval_tasks=make_tasks(192, held_out=True),
        model=ModelConfig(path=str(output / "model"), family=FAMILY, options={"device": "cpu"}),
        rollout=RolloutConfig(group_size=8, tasks_per_step=16, concurrency=128, max_tokens=48),
        optimizer=OptimizerConfig(lr=7e-4, schedule="linear", warmup_steps=2),
        steps=steps,
        eval_every=10,
        seed=seed,
        output=output,
    )


def _empty(output: Path) -> None:
    """Make room for a new demo; what isn't an earlier one's is never touched."""
    if output.exists():
        if any(output.iterdir()) and not (output / _MARK).exists():
            raise ConfigError(f"--output {output}: there is something else in that folder; name another one")
        shutil.rmtree(output)
    output.mkdir(parents=True)
    (output / _MARK).touch()
