"""Puts the members of each group together again, whatever order they finish in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agentfly.errors import ConfigError
from agentfly.rollout.request import GroupRequest, RolloutRequest
from agentfly.rollout.trajectory import Group, Trajectory


class GroupAssembler:
    """Pure bookkeeping of open groups; a trajectory that comes twice counts once."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[GroupRequest, dict[int, Trajectory]]] = {}
        self._missing = 0

    @property
    def open_rollouts(self) -> int:
        """Members still missing, over all open groups."""
        return self._missing

    def open(self, request: GroupRequest, age: int) -> Iterator[RolloutRequest]:
        """Register a group; returns its members' requests.

        Raises:
            ConfigError: a group of this id is open, or it has no members.
        """
        if request.id in self._open:
            raise ConfigError(f"group {request.id!r} is already running: give each group request its own id")
        if request.size < 1:
            raise ConfigError(f"group {request.id!r} has size {request.size}: it must be at least 1")
        self._open[request.id] = (request, {})
        self._missing += request.size
        return (replace(rollout, age=age) for rollout in request.rollouts())

    def add(self, trajectory: Trajectory) -> Group | None:
        """Take a finished member; returns its group when it was the last one."""
        if trajectory.group_id not in self._open:
            return None
        request, members = self._open[trajectory.group_id]
        if trajectory.index in members:
            return None
        members[trajectory.index] = trajectory
        self._missing -= 1
        if len(members) < request.size:
            return None
        del self._open[trajectory.group_id]
        return Group(request.id, request.task, [members[index] for index in sorted(members)])
