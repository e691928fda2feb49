"""What goes between clients and the manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentfly.resources.card import SpecCard
from agentfly.resources.core.types import Grant, Lease, Reject, Request


@dataclass
class Update:
    """All that a client process has to say at one moment.

    Attributes:
        specs: of pools that this client names for the first time, by key.
        acquires: new requests, by ticket.
        releases: tickets that are given or taken back.
        suspects: pool key and id of hosts that failed a call as the dead do.
    """

    specs: dict[str, SpecCard] = field(default_factory=dict)
    acquires: dict[str, Request] = field(default_factory=dict)
    releases: list[str] = field(default_factory=list)
    suspects: set[tuple[str, str]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.specs or self.acquires or self.releases or self.suspects)


@dataclass(frozen=True)
class Replay:
    """A broadcast that hosts which start later run too.

    Attributes:
        arguments: reference to the tuple of arguments.
        time: seconds since the epoch when it was sent; the latest counts.
    """

    pool: str
    method: str
    arguments: Any
    time: float


@dataclass(frozen=True)
class Standing:
    """All that a client has and wants: what it says first, and whenever it or the manager has lost touch."""

    specs: Mapping[str, SpecCard]
    held: list[tuple[Request, Lease]]
    waiting: list[Request]
    replays: list[Replay]


@dataclass(frozen=True)
class News:
    """What the manager has for a client.

    Attributes:
        answers: to its requests.
        hosts: actor handles of the hosts that the grants are in, by host id; each is sent once.
        lost: tickets whose leases have ended.
        heartbeat: seconds between two signs of life that the client has to give; 0 says nothing new.
        unknown: the manager doesn't know this client, or no longer: it has to say its standing.
    """

    answers: list[Grant | Reject] = field(default_factory=list)
    hosts: Mapping[str, Any] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    heartbeat: float = 0.0
    unknown: bool = False
