"""Events and actions of the scheduling core: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PoolLimits:
    """What the core must know of a spec; see `ResourceSpec` for the meanings."""

    name: str
    slots: int
    shared: bool
    min_size: int
    max_size: int
    max_waiting: int
    max_uses: int | None
    max_age: float | None
    idle_ttl: float | None
    start_retries: int


@dataclass(frozen=True)
class Request:
    """Someone wants a lease.

    Attributes:
        ticket: names the request; asking again with the same one changes nothing.
        client: the process that asks and whose life the lease depends on.
        priority: lower is served first; equal ones in order of arrival.
    """

    ticket: str
    client: str
    pool: str
    priority: float = 0.0


@dataclass(frozen=True)
class Lease:
    """A granted slot, for one holder, until it is released.

    Attributes:
        epoch: grows with every lease of the slot; a call with an older one is stale.
    """

    ticket: str
    client: str
    pool: str
    host: str
    slot: int
    epoch: int


@dataclass(frozen=True)
class Grant:
    """Action: tell the client."""

    lease: Lease
    waited: float


@dataclass(frozen=True)
class Reject:
    """Action: tell the client that there will be no lease."""

    ticket: str
    client: str
    error: Literal["saturated", "start_failed"]
    message: str
    waiting: int = 0
    retry_after: float | None = None


@dataclass(frozen=True)
class StartHost:
    """Action: start a host with `slots` slots, in `delay` seconds; answer with host_ready or host_failed."""

    pool: str
    host: str
    slots: int
    delay: float = 0.0


@dataclass(frozen=True)
class StopHost:
    """Action: stop a host and everything in it."""

    pool: str
    host: str


@dataclass(frozen=True)
class ResetSlot:
    """Action: make a slot clean again; answer with slot_reset.

    Attributes:
        epoch: calls of earlier leases are to be refused from now on.
        renew: replace the resource instead of resetting it.
    """

    pool: str
    host: str
    slot: int
    epoch: int
    renew: bool


Action = Grant | Reject | StartHost | StopHost | ResetSlot


@dataclass(frozen=True)
class PoolStats:
    """A pool at one moment. Counts of slots, unless said otherwise.

    Attributes:
        size: slots of hosts that run or start.
        starting, idle, leased, resetting: what they are doing.
        waiting: requests in the queue.
        hosts: processes.
        leases: granted since the start.
        starts, start_failures, resets, reset_failures, deaths: events since the start.
        wait_p50, wait_p99: seconds that recent leases were waited for.
    """

    name: str
    size: int
    starting: int
    idle: int
    leased: int
    resetting: int
    waiting: int
    hosts: int
    leases: int
    starts: int
    start_failures: int
    resets: int
    reset_failures: int
    deaths: int
    wait_p50: float
    wait_p99: float
