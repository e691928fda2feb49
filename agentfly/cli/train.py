"""`agentfly train`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console

from agentfly.cli.interrupt import Interrupted, run_interruptible
from agentfly.training.loading import load_job
from agentfly.training.run import atrain


def run_train(path: Path, overrides: Sequence[str], *, resume: bool) -> None:
    """Train, and say where the checkpoint is."""
    job = load_job(path, overrides)
    console = Console()
    try:
        result = run_interruptible(atrain(job, resume=resume))
    except Interrupted as stop:
        console.print(f"stopped; go on with --resume (checkpoints in {job.output})", soft_wrap=True)
        raise typer.Exit(stop.exit_code) from None
    console.print(f"done after {result.steps} steps; checkpoint in {result.checkpoint}", soft_wrap=True)
