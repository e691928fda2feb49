"""What a runner is asked for, and how it is to be run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from agentfly.context.task import Task
from agentfly.errors import ConfigError
from agentfly.models.engine import Sampling
from agentfly.rollout.seeds import derive_seed


@dataclass(frozen=True)
class GroupRequest:
    """Several rollouts of one task.

    Attributes:
        id: unique in the job.
        task: what each of them is asked.
        size: how many.
        seed: of the group; each rollout's own is derived from it.
    """

    id: str
    task: Task
    size: int = 1
    seed: int = 0

    def rollouts(self) -> Iterator[RolloutRequest]:
        """One request for each member."""
        for index in range(self.size):
            yield RolloutRequest(self.id, index, self.task, derive_seed(self.seed, self.id, index))


@dataclass(frozen=True)
class RolloutRequest:
    """One rollout to run.

    Attributes:
        age: position in the order of submission; older rollouts are served first everywhere.
        attempt: how often a worker process died while it had this rollout.
    """

    group_id: str
    index: int
    task: Task
    seed: int
    age: int = 0
    attempt: int = 0

    @property
    def id(self) -> str:
        """Unique in the job."""
        return f"{self.group_id}.{self.index}"


@dataclass(frozen=True)
class RolloutOptions:
    """How rollouts are run.

    Attributes:
        workers: rollout processes (Ray tasks).
        concurrency: rollouts at once in each.
        sampling: how completions are drawn; the agent's own limits cap max_tokens, and each
            completion gets a seed of its own.
        timeout: seconds a rollout may work (time in queues not counted); None is no limit.
        max_attempts: runs of one rollout before an infrastructure fault ends it.
        num_cpus: what Ray reserves for each worker.
        admission: begin a rollout only when a slot of what its tools claim is likely to be free in time; without it
            rollouts begin as they come, spend tokens, and then wait.
    """

    workers: int = 1
    concurrency: int = 64
    sampling: Sampling = field(default_factory=Sampling)
    timeout: float | None = 300.0
    max_attempts: int = 3
    num_cpus: float = 0.0
    admission: bool = True

    def __post_init__(self) -> None:
        for name in ("workers", "concurrency", "max_attempts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"rollout.{name} is {getattr(self, name)}: it must be at least 1")
        if self.timeout is not None and self.timeout <= 0:
            raise ConfigError(f"rollout.timeout is {self.timeout}: it must be positive, or null for no limit")
