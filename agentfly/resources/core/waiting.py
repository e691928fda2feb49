"""The wait queue of a pool."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from agentfly.resources.core.types import Request

Turn: TypeAlias = tuple[float, int]
"""Priority, then the order of arrival over all pools: lower is served first."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A request in the queue.

    Attributes:
        since: when it joined.
        turn: its place among all waiters of all pools.
        lane: waiters of one lane are all served or all passed over; see `WaitQueue`.
        overtaken: how often somebody behind it was served first.
    """

    request: Request
    since: float
    turn: Turn
    lane: Hashable = None
    overtaken: int = 0


class WaitQueue:
    """Waiters by turn, in lanes.

    Whether a waiter may be served can depend on what its holder has and may yet claim, and is the same for all
    whose holders are alike in this. Each such class is a lane with a heap of its own, so that a queue of
    thousands who have to wait is passed over by one look. Leaving from the middle is lazy: all operations are
    O(log n) in waiters and linear in lanes, of which there are a handful.
    """

    def __init__(self) -> None:
        self._lanes: dict[Hashable, list[tuple[Turn, str]]] = {}
        self._waiters: dict[str, Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, ticket: str) -> bool:
        return ticket in self._waiters

    def push(self, waiter: Waiter) -> None:
        """Join the queue."""
        self._waiters[waiter.request.ticket] = waiter
        heapq.heappush(self._lanes.setdefault(waiter.lane, []), (waiter.turn, waiter.request.ticket))

    def remove(self, ticket: str) -> Waiter | None:
        """Leave the queue; None when it wasn't in it."""
        return self._waiters.pop(ticket, None)

    def relane(self, ticket: str, lane_of: Callable[[Request], Hashable]) -> None:
        """The lane may have changed; the turn stays."""
        waiter = self._waiters.get(ticket)
        if waiter is not None and (lane := lane_of(waiter.request)) != waiter.lane:
            waiter.lane = lane
            heapq.heappush(self._lanes.setdefault(lane, []), (waiter.turn, ticket))

    def heads(self) -> list[Waiter]:
        """The first of every lane, by turn."""
        if len(self._lanes) == 1:
            (lane,) = self._lanes
            head = self._head(lane)
            return [] if head is None else [head]
        heads = [head for lane in list(self._lanes) if (head := self._head(lane)) is not None]
        heads.sort(key=lambda waiter: waiter.turn)
        return heads

    def first(self) -> Waiter | None:
        """The one whose turn it is, lanes aside."""
        return next(iter(self.heads()), None)

    def ordered(self) -> Iterator[Waiter]:
        """All, by turn."""
        return iter(sorted(self._waiters.values(), key=lambda waiter: waiter.turn))

    def _head(self, lane: Hashable) -> Waiter | None:
        heap = self._lanes[lane]
        while heap:
            turn, ticket = heap[0]
            waiter = self._waiters.get(ticket)
            # One that has left, or has changed its lane, is still in the heap.
            if waiter is not None and waiter.lane == lane and waiter.turn == turn:
                return waiter
            heapq.heappop(heap)
        del self._lanes[lane]
        return None
