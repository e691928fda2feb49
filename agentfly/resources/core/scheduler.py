"""All pools of a job, and the clients whose life their leases depend on. Pure, like the pools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agentfly.resources.core.claims import ClaimLedger
from agentfly.resources.core.pool import Pool
from agentfly.resources.core.types import (
    Action,
    ClientGone,
    Ending,
    Grant,
    Lease,
    PoolLimits,
    PoolStats,
    Reject,
    Request,
)

_DEADLOCK_CHECK = 1.0


@dataclass
class _Client:
    last_seen: float
    tickets: dict[str, str] = field(default_factory=dict)  # ticket -> pool, in the order of asking


class Scheduler:
    """Routes events to pools and ends what belongs to clients that have fallen silent.

    Args:
        client_ttl: seconds without a sign of life after which a client's leases come home.
        prefix: begins the ids of hosts; unique among all managers that the job has had.
        recovering: hosts and clients of an earlier manager are about to say what there is; until `recovered`
            requests queue and nothing is granted.
        epoch_floor: more than any epoch of an earlier manager's: a host knows only the epochs that called.
    """

    def __init__(
        self, client_ttl: float = 15.0, *, prefix: str = "", recovering: bool = False, epoch_floor: int = 0
    ) -> None:
        self._client_ttl = client_ttl
        self._prefix = prefix
        self._recovering = recovering
        self._epoch_floor = epoch_floor
        self._pools: dict[str, Pool] = {}
        self._clients: dict[str, _Client] = {}
        self._claims = ClaimLedger()
        self._next_check = 0.0

    @property
    def recovering(self) -> bool:
        """Whether an earlier manager's leases are still being gathered."""
        return self._recovering

    def add_pool(self, key: str, limits: PoolLimits, now: float) -> list[Action]:
        """Make a pool, unless it is there."""
        if key in self._pools:
            return []
        pool = self._pools[key] = Pool(key, limits, self._claims, f"{key}-{self._prefix}")
        pool.recovering = self._recovering
        return pool.tick(now)

    # Clients

    def seen(self, client: str, now: float) -> None:
        """A client has shown that it lives."""
        self._known(client, now).last_seen = now

    def acquire(self, request: Request, now: float) -> list[Action]:
        """See `Pool.acquire`."""
        self._known(request.client, now).tickets[request.ticket] = request.pool
        return self._settle(self._pools[request.pool].acquire(request, now), now)

    def release(self, client: str, ticket: str, now: float) -> list[Action]:
        """A client gives a lease back, or takes a request back; twice, or late, changes nothing."""
        known = self._clients.get(client)
        pool = known.tickets.pop(ticket, None) if known else None
        if pool is None:
            return []
        if self._pools[pool].withdraw(ticket):
            return self._settle([], now)
        return self._settle(self._pools[pool].release(ticket, now), now)

    def client_gone(self, client: str, now: float, how: Ending = "client_gone") -> list[Action]:
        """Everything that a client held or waited for comes back.

        Args:
            how: `released` for a client that has said goodbye.
        """
        known = self._clients.pop(client, None)
        if known is None:
            return []
        # All its requests leave their queues before a lease of its own could be handed on to them.
        held = [(ticket, pool) for ticket, pool in known.tickets.items() if not self._pools[pool].withdraw(ticket)]
        actions: list[Action] = [ClientGone(client)]
        for ticket, pool in held:
            actions += self._pools[pool].release(ticket, now, how)
        return self._settle(actions, now)

    def rejoin(
        self, client: str, held: Sequence[tuple[Request, Lease]], waiting: Sequence[Request], now: float
    ) -> tuple[list[Action], list[str]]:
        """A client says all that it has and wants, because it or the manager has lost touch.

        Returns:
            Actions, and the tickets among `held` whose leases have ended.
        """
        self.seen(client, now)
        tickets = self._clients[client].tickets
        mentioned = {request.ticket for request, _ in held} | {request.ticket for request in waiting}
        actions: list[Action] = []
        for ticket in [ticket for ticket in tickets if ticket not in mentioned]:
            actions += self.release(client, ticket, now)
        lost: list[str] = []
        for request, lease in held:
            pool = self._pools[request.pool]
            if pool.has_lease(request.ticket) or pool.adopt(request, lease, now):
                tickets[request.ticket] = request.pool
            else:
                lost.append(request.ticket)
        for request in sorted(waiting, key=lambda request: request.priority):
            actions += self.acquire(request, now)
        return actions, lost

    # Hosts

    def host_ready(self, pool: str, host: str, now: float) -> list[Action]:
        """See `Pool.host_ready`."""
        return self._settle(self._pools[pool].host_ready(host, now), now)

    def host_failed(self, pool: str, host: str, reason: str, now: float) -> list[Action]:
        """See `Pool.host_failed`."""
        return self._settle(self._pools[pool].host_failed(host, reason, now), now)

    def host_died(self, pool: str, host: str, now: float) -> list[Action]:
        """See `Pool.host_died`."""
        return self._settle(self._pools[pool].host_died(host, now), now)

    def slot_reset(self, pool: str, host: str, slot: int, ok: bool, reason: str, now: float) -> list[Action]:
        """See `Pool.slot_reset`."""
        return self._settle(self._pools[pool].slot_reset(host, slot, ok, reason, now), now)

    def unhealthy(self, pool: str, host: str, slot: int, epoch: int, now: float) -> list[Action]:
        """See `Pool.unhealthy`."""
        return self._settle(self._pools[pool].unhealthy(host, slot, epoch, now), now)

    def host_found(self, pool: str, host: str, epochs: Iterable[int], now: float) -> None:
        """See `Pool.host_found`."""
        self._pools[pool].host_found(host, epochs, now)

    def recovered(self, now: float) -> list[Action]:
        """Every host and client of the earlier manager has spoken, or is taken for dead."""
        self._recovering = False
        actions = [action for pool in self._pools.values() for action in pool.recovered(self._epoch_floor, now)]
        return self._settle(actions, now)

    # Time and size

    def resize(self, pool: str, min_size: int, max_size: int, now: float) -> list[Action]:
        """See `Pool.resize`."""
        return self._settle(self._pools[pool].resize(min_size, max_size, now), now)

    def tick(self, now: float) -> list[Action]:
        """Time passes."""
        actions: list[Action] = []
        for client in [name for name, known in self._clients.items() if now - known.last_seen > self._client_ttl]:
            actions += self.client_gone(client, now)
        for pool in self._pools.values():
            actions += pool.tick(now)
        if now >= self._next_check and not self._recovering:
            self._next_check = now + _DEADLOCK_CHECK
            actions += self._break_deadlocks()
        return self._settle(actions, now)

    def stop(self, now: float) -> list[Action]:
        """End all pools."""
        return [action for pool in self._pools.values() for action in pool.stop(now)]

    # What there is

    def stats(self) -> list[PoolStats]:
        """Of every pool."""
        return [pool.stats() for pool in self._pools.values()]

    @property
    def clients(self) -> Iterable[str]:
        """Those that have shown life lately."""
        return self._clients.keys()

    @property
    def pools(self) -> Iterable[Pool]:
        """All pools."""
        return self._pools.values()

    def _known(self, client: str, now: float) -> _Client:
        known = self._clients.get(client)
        if known is None:
            known = self._clients[client] = _Client(now)
        return known

    def _break_deadlocks(self) -> list[Action]:
        actions: list[Action] = []
        for holder in self._claims.deadlocked():
            message = (
                f"{holder} gives way: rollouts hold what others wait for, in a circle; name the claims of the agent's "
                "tools and it can't happen"
            )
            for ticket, pool in list(self._claims.waiting(holder).items()):
                actions += self._pools[pool].refuse(ticket, "deadlock", message)
        return actions

    def _settle(self, actions: list[Action], now: float) -> list[Action]:
        """Serve whom the event has made servable in other pools; forget the tickets of who was refused."""
        while blocked := self._claims.blocked:
            more = [action for key in sorted(blocked) for action in self._pools[key].serve(now)]
            actions = actions + more
            if not any(isinstance(action, Grant) for action in more):
                break
        for action in actions:
            if type(action) is Reject and (client := self._clients.get(action.client)) is not None:
                client.tickets.pop(action.ticket, None)
        return actions
