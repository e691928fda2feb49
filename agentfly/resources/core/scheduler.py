"""All pools of a job, and the clients whose life their leases depend on. Pure, like the pools."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from agentfly.resources.core.pool import Pool
from agentfly.resources.core.types import Action, Grant, PoolLimits, PoolStats, Reject, Request


@dataclass
class _Client:
    last_seen: float
    tickets: dict[str, str] = field(default_factory=dict)  # ticket -> pool, in the order of asking


class Scheduler:
    """Routes events to pools and ends what belongs to clients that have fallen silent.

    Args:
        client_ttl: seconds without a sign of life after which a client's leases come home.
    """

    def __init__(self, client_ttl: float = 15.0) -> None:
        self._client_ttl = client_ttl
        self._pools: dict[str, Pool] = {}
        self._clients: dict[str, _Client] = {}

    def add_pool(self, key: str, limits: PoolLimits, now: float) -> list[Action]:
        """Make a pool, unless it is there."""
        if key in self._pools:
            return []
        self._pools[key] = Pool(key, limits)
        return self._pools[key].tick(now)

    def seen(self, client: str, now: float) -> None:
        """A client has shown that it lives."""
        self._clients.setdefault(client, _Client(now)).last_seen = now

    def acquire(self, request: Request, now: float) -> list[Action]:
        """See `Pool.acquire`."""
        self._clients.setdefault(request.client, _Client(now)).tickets[request.ticket] = request.pool
        return self._filed(self._pools[request.pool].acquire(request, now))

    def release(self, client: str, ticket: str, now: float) -> list[Action]:
        """A client gives a lease back, or takes a request back."""
        known = self._clients.get(client)
        pool = known.tickets.pop(ticket, None) if known else None
        return [] if pool is None else self._filed(self._pools[pool].cancel(ticket, now))

    def client_gone(self, client: str, now: float) -> list[Action]:
        """Everything that a client held or waited for comes back."""
        known = self._clients.pop(client, None)
        if known is None:
            return []
        actions: list[Action] = []
        # The youngest first: requests leave the queue before the leases that they would have got are handed on.
        for ticket, pool in reversed(known.tickets.items()):
            actions += self._pools[pool].cancel(ticket, now)
        return self._filed(actions)

    def host_ready(self, pool: str, host: str, now: float) -> list[Action]:
        """See `Pool.host_ready`."""
        return self._filed(self._pools[pool].host_ready(host, now))

    def host_failed(self, pool: str, host: str, reason: str, now: float) -> list[Action]:
        """See `Pool.host_failed`."""
        return self._filed(self._pools[pool].host_failed(host, reason, now))

    def host_died(self, pool: str, host: str, now: float) -> list[Action]:
        """See `Pool.host_died`."""
        return self._filed(self._pools[pool].host_died(host, now))

    def slot_reset(self, pool: str, host: str, slot: int, ok: bool, reason: str, now: float) -> list[Action]:
        """See `Pool.slot_reset`."""
        return self._filed(self._pools[pool].slot_reset(host, slot, ok, reason, now))

    def resize(self, pool: str, min_size: int, max_size: int, now: float) -> list[Action]:
        """See `Pool.resize`."""
        return self._filed(self._pools[pool].resize(min_size, max_size, now))

    def tick(self, now: float) -> list[Action]:
        """Time passes."""
        actions: list[Action] = []
        for client in [name for name, known in self._clients.items() if now - known.last_seen > self._client_ttl]:
            actions += self.client_gone(client, now)
        for pool in self._pools.values():
            actions += self._filed(pool.tick(now))
        return actions

    def stop(self) -> list[Action]:
        """End all pools."""
        return [action for pool in self._pools.values() for action in pool.stop()]

    def stats(self) -> Iterable[PoolStats]:
        """Of every pool."""
        return [pool.stats() for pool in self._pools.values()]

    def _filed(self, actions: list[Action]) -> list[Action]:
        """Forget refused tickets; take back at once what is granted to a client that is gone."""
        for action in actions:
            if isinstance(action, Reject) and (client := self._clients.get(action.client)) is not None:
                client.tickets.pop(action.ticket, None)
            assert not isinstance(action, Grant) or action.lease.client in self._clients
        return actions
