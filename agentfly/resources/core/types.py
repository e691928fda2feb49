"""Events and actions of the scheduling core: plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias


@dataclass(frozen=True)
class PoolLimits:
    """What the core must know of a spec; see `ResourceSpec` for the meanings.

    Attributes:
        resets: whether a slot has to be made clean between two leases.
    """

    name: str
    slots: int = 1
    shared: bool = False
    resets: bool = True
    min_size: int = 0
    max_size: int = 64
    spares: int | Literal["auto"] = 0
    max_waiting: int = 100_000
    max_uses: int | None = None
    max_age: float | None = None
    idle_ttl: float | None = None
    health_interval: float | None = None
    start_retries: int = 3


# The tuples below are made and sent once or more for each lease: a named tuple costs a third of a frozen dataclass.


class Request(NamedTuple):
    """Someone wants a lease.

    Attributes:
        ticket: names the request; asking again with the same one changes nothing.
        client: the process that asks and whose life the lease depends on.
        pool: key of the pool.
        priority: lower is served first; equal ones in order of arrival.
        holder: the rollout that asks, unique in the job; empty for one that holds nothing else.
        claims: keys of all pools that the holder may ever hold a lease of at the same time; one that is
            there twice is claimed twice.
        share: requests of one pool with the same share get the same lease; empty for one's own.
    """

    ticket: str
    client: str
    pool: str
    priority: float = 0.0
    holder: str = ""
    claims: tuple[str, ...] = ()
    share: str = ""


class Lease(NamedTuple):
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


class Grant(NamedTuple):
    """Action: tell the client."""

    lease: Lease
    waited: float


Refusal: TypeAlias = Literal["saturated", "start_failed", "deadlock", "stopped"]


class Reject(NamedTuple):
    """Action: tell the client that there will be no lease."""

    ticket: str
    client: str
    error: Refusal
    message: str
    waiting: int = 0
    retry_after: float | None = None


Ending: TypeAlias = Literal["released", "client_gone", "host_died", "stopped"]


class LeaseEnded(NamedTuple):
    """Action: a lease is over; for the log.

    Attributes:
        waited, held: seconds in the queue and in the holder's hands.
    """

    lease: Lease
    holder: str
    waited: float
    held: float
    how: Ending


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


@dataclass(frozen=True)
class CheckHost:
    """Action: ask resources how they are; answer with `unhealthy` when some are not well.

    Attributes:
        slots: index and epoch of the idle slots to ask; of a shared resource there is only the one, for all.
    """

    pool: str
    host: str
    slots: tuple[tuple[int, int], ...]


class ClientGone(NamedTuple):
    """Action: forget a client; should it live after all, it has to say its standing."""

    client: str


Action: TypeAlias = Grant | Reject | LeaseEnded | StartHost | StopHost | ResetSlot | CheckHost | ClientGone


@dataclass(frozen=True)
class PoolStats:
    """A pool at one moment. Counts of slots, unless said otherwise.

    Attributes:
        key, name: of the pool; two specs may have one name, never one key.
        min_size, max_size: bounds of the size at present.
        size: slots of all hosts, those that start included.
        starting, idle, leased, resetting: what they are doing.
        waiting: requests in the queue.
        hosts: processes.
        leases: granted since the start.
        starts, start_failures, resets, reset_failures, deaths: events since the start.
        wait_p50, wait_p99: seconds that recent leases were waited for.
    """

    key: str
    name: str
    min_size: int
    max_size: int
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

    @property
    def failures(self) -> int:
        """Starts and resets that failed, and deaths."""
        return self.start_failures + self.reset_failures + self.deaths


def pool_labels(pools: Sequence[PoolStats]) -> list[str]:
    """A label for each pool: its name, with the begin of its key where others have that name too."""
    names = Counter(stats.name for stats in pools)
    return [stats.name if names[stats.name] == 1 else f"{stats.name}-{stats.key[:6]}" for stats in pools]
