"""An actor that collects the trajectories of a job from all of verl's agent loop workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray

from agentfly.resources.hosting import NAMESPACE
from agentfly.rollout.trajectory import Group, Trajectory


@dataclass(frozen=True)
class Recorded:
    """One finished rollout.

    Attributes:
        step: of verl, from 1; an evaluation before the first step has 0.
        trajectory: as it was played.
        evaluation: it was played to evaluate.
    """

    step: int
    trajectory: Trajectory
    evaluation: bool


class TrajectoryRecorder:
    """Keeps what it gets until it is fetched."""

    def __init__(self) -> None:
        self._kept: list[Recorded] = []

    async def add(self, step: int, trajectory: Trajectory, evaluation: bool) -> None:
        """Take a trajectory."""
        self._kept.append(Recorded(step, trajectory, evaluation))

    async def take(self) -> list[Recorded]:
        """All since the last time."""
        kept, self._kept = self._kept, []
        return kept


def start_recorder(name: str) -> Any:
    """Start one in the cluster under a name that is unique in it; it ends with this process."""
    return ray.remote(TrajectoryRecorder).options(name=name, namespace=NAMESPACE, num_cpus=0).remote()


def groups_of(recorded: list[Recorded]) -> list[Group]:
    """The groups of these trajectories, ordered by name, members by index."""
    groups: dict[str, list[Trajectory]] = {}
    for entry in recorded:
        groups.setdefault(entry.trajectory.group_id, []).append(entry.trajectory)
    return [
        Group(name, members[0].task, sorted(members, key=lambda member: member.index))
        for name, members in sorted(groups.items())
    ]
