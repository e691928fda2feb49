"""Hosts and slots of a pool, as the core sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class SlotState(Enum):
    """Where a slot is in its life."""

    STARTING = "starting"
    IDLE = "idle"
    LEASED = "leased"
    RESETTING = "resetting"
    BROKEN = "broken"
    UNKNOWN = "unknown"  # found by a restarted manager, and nobody has said yet that he holds it

    # Enum hashes by name in Python code; states are counted in every event.
    __hash__ = object.__hash__


@dataclass(slots=True)
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


@dataclass(eq=False, slots=True)
class Host:
    """One host process.

    Attributes:
        slots: by index.
        round: which round of starts it belongs to; failures of one round count once.
        asked: when it was asked for.
        ready: it has started.
        retiring: it gets no more leases, and is stopped when the last one ends.
        served: leases that have ended in it.
        idle_since: when its last lease ended; None while it has one.
        checked: when its health was asked last.
        free: indices of idle slots.
        tickets: of the leases in it.
        busy: slots that are leased or being reset.
    """

    id: str
    slots: list[Slot]
    round: int = 0
    asked: float = 0.0
    ready: bool = False
    born: float = 0.0
    retiring: bool = False
    served: int = 0
    idle_since: float | None = None
    checked: float = 0.0
    free: list[int] = field(default_factory=list)
    tickets: set[str] = field(default_factory=set)
    busy: int = 0
