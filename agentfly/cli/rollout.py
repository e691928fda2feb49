"""`agentfly rollout`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from agentfly.agent import Agent
from agentfly.cli.interrupt import Interrupted, run_interruptible
from agentfly.errors import AgentFlyError
from agentfly.models.spec import ModelSpec
from agentfly.rollout.opener import load_format
from agentfly.rollout.request import GroupRequest, RolloutOptions
from agentfly.rollout.runner import RolloutRunner
from agentfly.rollout.session import resource_session
from agentfly.rollout.storage import TrajectoryWriter, write_parquet
from agentfly.rollout.trajectory import Trajectory, mean_metrics
from agentfly.training.loading import load_job
from agentfly.training.run import load_parts, make_output


def run_rollout(path: Path, overrides: Sequence[str], *, samples: int, limit: int | None, parquet: bool) -> None:
    """Run the job's agent, write trajectories, print a summary.

    Raises:
        ConfigError: something of the job is wrong; nothing has been started.
        AgentFlyError: more rollouts failed than the job allows.
    """
    job = load_job(path, overrides)
    agent, tasks, eval_tasks = load_parts(job)
    model = job.model.spec()
    chosen = (eval_tasks or tasks)[:limit]
    console = Console()
    place = job.output / "rollouts.jsonl"
    load_format(model, agent.tools)
    make_output(job.output)
    events = place.with_suffix(".events.jsonl").absolute()
    events.unlink(missing_ok=True)

    async def run() -> list[Trajectory]:
        requests = [GroupRequest(f"{index}-{task.id}", task, samples, job.seed) for index, task in enumerate(chosen)]
        return await _play(agent, model, job.rollout.options(), requests, place, events, console)

    try:
        trajectories = run_interruptible(run())
    except Interrupted as stop:
        console.print(f"stopped; what had ended is in {place}", soft_wrap=True)
        raise typer.Exit(stop.exit_code) from None
    console.print(summary(trajectories))
    if parquet:
        write_parquet(place.with_suffix(".parquet"), trajectories)
    console.print(f"trajectories in {place}", soft_wrap=True)
    failed = sum(trajectory.error is not None for trajectory in trajectories)
    allowed = job.rollout.max_failed_fraction
    if failed > allowed * len(trajectories):
        raise AgentFlyError(f"{failed} of {len(trajectories)} rollouts failed (allowed: {allowed:.0%})")


async def _play(
    agent: Agent,
    model: ModelSpec,
    options: RolloutOptions,
    requests: list[GroupRequest],
    place: Path,
    events: Path,
    console: Console,
) -> list[Trajectory]:
    bar = Progress(
        TextColumn("rollouts"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True
    )
    trajectories: list[Trajectory] = []
    async with (
        resource_session(place.parent.name, event_log=events) as manager,
        RolloutRunner(agent, model, options, manager=manager) as runner,
    ):
        with bar, TrajectoryWriter(place, position=0) as writer:
            progress = bar.add_task("rollouts", total=sum(request.size for request in requests))
            async for group in runner.run(requests):
                for trajectory in group:
                    writer.write(trajectory)
                    trajectories.append(trajectory)
                bar.advance(progress, len(group.trajectories))
    return trajectories


def summary(trajectories: Sequence[Trajectory]) -> Table:
    """Rewards, how rollouts ended, and where their time went."""
    table = Table(title=f"{len(trajectories)} rollouts", show_header=False)
    rewards = [trajectory.reward for trajectory in trajectories if trajectory.reward is not None]
    if rewards:
        table.add_row("mean reward", f"{fmean(rewards):.4f}")
    without = len(trajectories) - len(rewards)
    if without:
        table.add_row("without a reward", str(without))
    for name, value in sorted(mean_metrics(trajectories).items()):
        table.add_row(name, f"{value:.4f}")
    table.add_section()
    for reason, count in Counter(trajectory.finish_reason for trajectory in trajectories).most_common():
        table.add_row(f"ended by {reason}", str(count))
    table.add_row("turns", f"{fmean(trajectory.turns for trajectory in trajectories):.2f}")
    errors = sum(trajectory.tool_errors for trajectory in trajectories)
    table.add_row("tool calls", f"{sum(trajectory.tool_calls for trajectory in trajectories)} ({errors} with errors)")
    table.add_section()
    for stage in ("waiting", "generating", "tools", "reward", "total"):
        seconds = fmean(getattr(trajectory.timing, stage) for trajectory in trajectories)
        table.add_row(f"seconds {stage}", f"{seconds:.3f}")
    failures = Counter(trajectory.error for trajectory in trajectories if trajectory.error)
    if failures:
        table.add_section()
        for error, count in failures.most_common(3):
            table.add_row(f"{count} failed", str(error))
    return table
