"""Hosts and slots of a pool, as the core sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum


class SlotState(Enum):
    """Where a slot is in its life."""

    STARTING = "starting"
    IDLE = "idle"
    LEASED = "leased"
    RESETTING = "resetting"
    BROKEN = "broken"


@dataclass
class Slot:
    """One place in a host.

    Attributes:
        epoch: of the present or, when idle, of the next lease.
        uses: leases that the resource in it has had.
        born: when that resource was started.
        renewing: the reset that runs replaces the resource.
    """

    state: SlotState = SlotState.STARTING
    epoch: int = 1
    uses: int = 0
    born: float = 0.0
    renewing: bool = False


@dataclass
class Host:
    """One host process.

    Attributes:
        slots: by index.
        free: indices of idle slots.
        round: which round of starts it belongs to; failures of one round count once.
        retiring: gets no more leases, and is stopped when the last one ends.
        idle_since: when its last lease ended; None while it has one.
    """

    id: str
    slots: list[Slot]
    round: int
    ready: bool = False
    retiring: bool = False
    free: list[int] = field(default_factory=list)
    idle_since: float | None = None

    def count(self, state: SlotState) -> int:
        """Slots in a state."""
        return sum(slot.state is state for slot in self.slots)

    @property
    def busy(self) -> bool:
        """Whether somebody holds or has just held a slot of it."""
        return any(slot.state in (SlotState.LEASED, SlotState.RESETTING) for slot in self.slots)

    def idle_slots(self) -> Iterator[tuple[int, Slot]]:
        """Index and slot of those that are idle."""
        return ((index, self.slots[index]) for index in self.free)
