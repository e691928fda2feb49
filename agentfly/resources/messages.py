"""What goes between clients and the manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentfly.resources.core.types import Grant, Reject
from agentfly.resources.spec import ResourceSpec


@dataclass
class Update:
    """All that a client process has to say at one moment.

    Attributes:
        specs: of pools that this client names for the first time, by key.
        acquires: ticket, pool key and priority of each new request.
        releases: tickets that are given or taken back.
        dead_hosts: pool key and host id of hosts that failed a call by dying.
    """

    specs: dict[str, ResourceSpec[Any]] = field(default_factory=dict)
    acquires: list[tuple[str, str, float]] = field(default_factory=list)
    releases: list[str] = field(default_factory=list)
    dead_hosts: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.specs or self.acquires or self.releases or self.dead_hosts)


@dataclass(frozen=True)
class News:
    """What the manager has for a client.

    Attributes:
        answers: to its requests.
        hosts: actor handles of the hosts that the grants are in, by host id.
    """

    answers: list[Grant | Reject]
    hosts: Mapping[str, Any]
