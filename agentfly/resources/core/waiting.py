"""The wait queue of a pool."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

from agentfly.resources.core.types import Request


@dataclass
class Waiter:
    """A request in the queue, and since when."""

    request: Request
    since: float


class WaitQueue:
    """Requests by priority, then by arrival. Leaving from the middle is lazy, so all operations are O(log n)."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._waiters: dict[str, Waiter] = {}
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, ticket: str) -> bool:
        return ticket in self._waiters

    def push(self, request: Request, now: float) -> None:
        """Join the queue."""
        self._waiters[request.ticket] = Waiter(request, now)
        heapq.heappush(self._heap, (request.priority, next(self._order), request.ticket))

    def pop(self) -> Waiter:
        """The one whose turn it is."""
        while True:
            _, _, ticket = heapq.heappop(self._heap)
            if (waiter := self._waiters.pop(ticket, None)) is not None:
                return waiter

    def remove(self, ticket: str) -> Waiter | None:
        """Leave the queue; None when it wasn't in it."""
        return self._waiters.pop(ticket, None)

    def drain(self) -> list[Waiter]:
        """Empty the queue; returns all, in order."""
        return [self.pop() for _ in range(len(self._waiters))]
