"""The rollouts of one prompt that run in this process: none is handed over before it is known how all ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass
class _Group:
    open: int = 0
    members: int = 0
    usable: int = 0
    settled: asyncio.Event = field(default_factory=asyncio.Event)


class GroupBook:
    """Counts how the members of each group ended.

    verl starts all rollouts of a prompt in one turn of the event loop, so all have entered before the first settles.
    """

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def enter(self, group: str) -> None:
        """A rollout of the group begins."""
        entry = self._groups.setdefault(group, _Group())
        entry.open += 1
        entry.members += 1

    def leave(self, group: str) -> None:
        """A rollout is taken out, as if it had never begun: it was cancelled."""
        entry = self._groups[group]
        entry.members -= 1
        self._close(group, entry)

    async def settle(self, group: str, *, usable: bool) -> tuple[int, int]:
        """A rollout has ended; returns, when all of the group have, how many there were and how many are usable."""
        entry = self._groups[group]
        entry.usable += usable
        self._close(group, entry)
        await entry.settled.wait()
        return entry.members, entry.usable

    def _close(self, group: str, entry: _Group) -> None:
        entry.open -= 1
        if entry.open == 0:
            entry.settled.set()
            self._groups.pop(group, None)
