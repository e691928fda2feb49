"""The job's work: which rollouts wait, which worker has which, and which were delivered."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from agentfly.rollout.request import RolloutRequest


class WorkQueue:
    """Pure bookkeeping of rollout requests, first come, first served.

    A request is waiting, taken by one worker, or gone. Work that a dead worker had taken goes back to
    the front, since it is the oldest there is.
    """

    def __init__(self, max_attempts: int) -> None:
        self._max_attempts = max_attempts
        self._waiting: deque[RolloutRequest] = deque()
        self._taken: dict[str, dict[str, RolloutRequest]] = {}

    @property
    def waiting(self) -> int:
        """Requests that no worker has."""
        return len(self._waiting)

    def add(self, requests: Iterable[RolloutRequest]) -> None:
        """Append new work."""
        self._waiting.extend(requests)

    @property
    def under_way(self) -> int:
        """Requests that workers have."""
        return sum(map(len, self._taken.values()))

    def take(self, worker: str, most: int) -> list[RolloutRequest]:
        """Hand the oldest requests to a worker."""
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self._taken.setdefault(worker, {}).update((request.id, request) for request in taken)
        return taken

    def delivered(self, worker: str, rollout_ids: Iterable[str]) -> int:
        """Forget what a worker has delivered; returns how many that were."""
        held = self._taken.get(worker, {})
        before = len(held)
        for rollout_id in rollout_ids:
            held.pop(rollout_id, None)
        return before - len(held)

    def lost(self, worker: str) -> list[RolloutRequest]:
        """Put back what a dead worker had taken; returns what has used up its attempts instead."""
        given_up = []
        for request in reversed(self._taken.pop(worker, {}).values()):
            again = replace(request, attempt=request.attempt + 1)
            if again.attempt < self._max_attempts:
                self._waiting.appendleft(again)
            else:
                given_up.append(again)
        return given_up
