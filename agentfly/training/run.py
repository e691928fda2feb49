"""From a job to a trained policy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryFile

from agentfly.agent import Agent
from agentfly.agent.loading import load_agent
from agentfly.context import Task
from agentfly.errors import ConfigError
from agentfly.training.backend import PreparedJob, TrainingResult, find_backend
from agentfly.training.data import check_tasks, load_tasks
from agentfly.training.job import TrainingJob
from agentfly.training.loggers import MetricsLogger, make_logger


def load_parts(job: TrainingJob) -> tuple[Agent, list[Task], list[Task]]:
    """The job's agent, tasks and evaluation tasks, checked against each other.

    Raises:
        ConfigError: one line on the first thing that is wrong.
    """
    agent = load_agent(job.agent) if isinstance(job.agent, str) else job.agent
    return agent, _tasks(job.tasks, "tasks", agent), _tasks(job.eval_tasks, "eval_tasks", agent)


async def atrain(job: TrainingJob, *, resume: bool = False, logger: MetricsLogger | None = None) -> TrainingResult:
    """Train. All that can be checked is checked before Ray or a model is started.

    Args:
        job: what to train.
        resume: go on exactly where the newest checkpoint in the job's output stands.
        logger: instead of the job's own.

    Raises:
        ConfigError: the job can't be run as it is.
        AgentFlyError: it failed on the way.
    """
    backend = find_backend(job.backend)
    backend.validate(job)
    agent, tasks, eval_tasks = load_parts(job)
    if agent.reward is None:
        raise ConfigError("agent: it has no reward, so there is nothing to train on: Agent(..., reward=...)")
    model = job.model.spec()
    if model.speaks != "tokens":
        raise ConfigError(f"model.engine: {job.model.engine} gives no token ids: it can be evaluated, not trained on")
    make_output(job.output)
    with logger or make_logger(job.loggers, job.output, job.steps) as metrics:
        return await backend.train(PreparedJob(job, agent, tasks, eval_tasks, metrics), resume=resume)


def train(job: TrainingJob, *, resume: bool = False) -> TrainingResult:
    """`atrain` for code that isn't asynchronous."""
    return asyncio.run(atrain(job, resume=resume))


def make_output(folder: Path) -> None:
    """Make the folder that a job writes to.

    Raises:
        ConfigError: it can't be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        raise ConfigError(f"output: can't write to {folder}: {getattr(error, 'strerror', None) or error}") from None


def _tasks(source: str | list[Task] | None, name: str, agent: Agent) -> list[Task]:
    if source is None:
        return []
    tasks = load_tasks(source) if isinstance(source, str) else source
    check_tasks(agent, tasks, source if isinstance(source, str) else name)
    return tasks
