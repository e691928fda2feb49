"""The seam between AgentFly and whoever changes the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from agentfly.agent import Agent
from agentfly.context import Task
from agentfly.errors import ConfigError
from agentfly.training.job import TrainingJob
from agentfly.training.loggers import MetricsLogger

_GROUP = "agentfly.backends"


@dataclass(frozen=True)
class PreparedJob:
    """A job whose parts have been loaded and checked.

    Attributes:
        job: as it was given.
        agent: what is trained.
        tasks: to train on; eval_tasks: held out, may be empty.
        logger: gets the metrics of each step.
    """

    job: TrainingJob
    agent: Agent
    tasks: list[Task]
    eval_tasks: list[Task]
    logger: MetricsLogger


@dataclass(frozen=True)
class TrainingResult:
    """What a run has left.

    Attributes:
        checkpoint: folder of the last one, in Hugging Face form.
        steps: updates done, of all runs of the job together.
        metrics: the last value of each.
    """

    checkpoint: Path | None
    steps: int
    metrics: Mapping[str, float] = field(default_factory=dict)


class TrainingBackend(Protocol):
    """Trains a policy on rollouts. Found by name through the entry points `agentfly.backends`."""

    def validate(self, job: TrainingJob) -> None:
        """Check that this backend can do what the job asks, before anything is started.

        Raises:
            ConfigError: naming the setting that it can't honour.
        """
        ...

    async def train(self, prepared: PreparedJob, *, resume: bool = False) -> TrainingResult:
        """Train to the end. Cancelled, it leaves a checkpoint and nothing running.

        Args:
            resume: go on from the newest checkpoint in the job's output.
        """
        ...


def find_backend(name: str) -> TrainingBackend:
    """The installed backend of a name.

    Raises:
        ConfigError: there is none.
    """
    found = {entry.name: entry for entry in entry_points(group=_GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"backend: {name!r} is not installed; there is: {known}")
    try:
        backend: TrainingBackend = found[name].load()()
    except ImportError as error:
        raise ConfigError(f"backend {name!r} needs {error.name}: pip install agentfly-rl[{name}]") from error
    return backend
