"""A world around the scheduling core for tests: hosts, clients, and what is true of them.

It carries out the core's actions at once or when told, keeps its own books, and checks after every event that
the core's promises hold. Nothing in it is taken from the core's own bookkeeping but for comparison.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agentfly.resources.core.scheduler import Scheduler
from agentfly.resources.core.types import (
    Action,
    CheckHost,
    ClientGone,
    Grant,
    Lease,
    LeaseEnded,
    PoolLimits,
    Reject,
    Request,
    ResetSlot,
    StartHost,
    StopHost,
)

TTL = 15.0


@dataclass
class WorldHost:
    """A host process: what a real one would know."""

    pool: str
    slots: int
    ready: bool = False
    epochs: list[int] = field(default_factory=list)


@dataclass
class WorldClient:
    """A client process: what a real one would know."""

    waiting: dict[str, Request] = field(default_factory=dict)
    held: dict[str, tuple[Request, Lease]] = field(default_factory=dict)


class World:
    """Drives a `Scheduler` and checks it."""

    def __init__(self, pools: dict[str, PoolLimits], *, checked: bool = True) -> None:
        self.pools = pools
        self.widest = dict(pools)
        self.checked = checked
        self.now = 0.0
        self.generation = 0
        self.core = Scheduler(TTL, prefix="g0-")
        self.hosts: dict[str, WorldHost] = {}
        self.clients: dict[str, WorldClient] = {}
        self.resets: list[ResetSlot] = []
        self.checks: list[CheckHost] = []
        self.silent: set[str] = set()
        self.actions: list[Action] = []
        self.grants: list[Grant] = []
        self.rejects: list[Reject] = []
        self.ended: Counter[str] = Counter()
        self.last_epoch: dict[tuple[str, int], int] = {}
        self.arrivals = itertools.count()
        self.arrival: dict[str, int] = {}
        self.tickets = 0
        for key, limits in pools.items():
            self.do(self.core.add_pool(key, limits, self.now))

    # Events

    def acquire(
        self,
        client: str,
        pool: str,
        *,
        priority: float = 0.0,
        holder: str = "",
        claims: tuple[str, ...] = (),
        share: str = "",
    ) -> str:
        """A client asks; returns the ticket."""
        self.tickets += 1
        ticket = f"t{self.tickets}"
        request = Request(ticket, client, pool, priority, holder, claims, share)
        self.client(client).waiting[ticket] = request
        self.arrival[ticket] = next(self.arrivals)
        self.do(self.core.acquire(request, self.now))
        return ticket

    def repeat(self, client: str, ticket: str) -> None:
        """A client asks again with the same ticket."""
        known = self.client(client)
        request = known.waiting.get(ticket) or known.held[ticket][0]
        self.do(self.core.acquire(request, self.now), repeated=True)

    def release(self, client: str, ticket: str) -> None:
        """A client gives back, or takes back."""
        known = self.client(client)
        known.waiting.pop(ticket, None)
        known.held.pop(ticket, None)
        self.do(self.core.release(client, ticket, self.now))

    def kill_client(self, client: str) -> None:
        """A client dies and is found out."""
        self.clients.pop(client)
        self.do(self.core.client_gone(client, self.now))

    def start(self, host_id: str) -> None:
        """A host's start succeeds."""
        host = self.hosts[host_id]
        host.ready = True
        host.epochs = [1] * host.slots
        self.do(self.core.host_ready(host.pool, host_id, self.now))

    def fail(self, host_id: str, reason: str = "no such file") -> None:
        """A host's start fails."""
        host = self.hosts.pop(host_id)
        self.do(self.core.host_failed(host.pool, host_id, reason, self.now))

    def kill_host(self, host_id: str) -> None:
        """A host dies: what was in it is gone."""
        pool = self._forget(host_id)
        self.do(self.core.host_died(pool, host_id, self.now))

    def reset(self, index: int, *, ok: bool) -> None:
        """A reset ends."""
        reset = self.resets.pop(index)
        self.do(self.core.slot_reset(reset.pool, reset.host, reset.slot, ok, "reset raised", self.now))

    def fail_check(self, check: CheckHost, slot: int, epoch: int) -> None:
        """A resource says that it isn't well; of a shared one the host is given up with all its leases."""
        if self.pools[check.pool].shared and check.host in self.hosts:
            self._forget(check.host)
        self.do(self.core.unhealthy(check.pool, check.host, slot, epoch, self.now))

    def advance(self, seconds: float) -> None:
        """Time passes; the living clients show it."""
        self.now += seconds
        for client in self.clients.keys() - self.silent:
            self.core.seen(client, self.now)
        self.do(self.core.tick(self.now))

    def resize(self, pool: str, min_size: int, max_size: int) -> None:
        """A pool's bounds change."""
        limits = replace(self.pools[pool], min_size=min_size, max_size=max_size)
        if limits.max_size > self.widest[pool].max_size:
            self.widest[pool] = limits
        self.pools[pool] = limits
        self.do(self.core.resize(pool, min_size, max_size, self.now))

    def restart_manager(self, *, late: Iterable[str] = ()) -> None:
        """The manager dies and another takes over; the clients in `late` don't speak in time."""
        self.generation += 1
        self.resets.clear()
        self.checks.clear()
        self.core = Scheduler(TTL, prefix=f"g{self.generation}-", recovering=True, epoch_floor=self.generation << 20)
        for host_id in [host_id for host_id, host in self.hosts.items() if not host.ready]:
            del self.hosts[host_id]
        for key, limits in self.pools.items():
            self.do(self.core.add_pool(key, limits, self.now))
        for host_id, host in self.hosts.items():
            self.core.host_found(host.pool, host_id, host.epochs, self.now)
        silent = {client: self.clients.pop(client) for client in late}
        for client, known in self.clients.items():
            self.rejoin(client)
            leases = {lease.ticket for pool in self.core.pools for lease in pool.leases}
            assert known.held.keys() <= leases, "a lease was lost"
        self.do(self.core.recovered(self.now))
        for client, known in silent.items():
            self.clients[client] = known
            self.rejoin(client)

    def rejoin(self, client: str) -> None:
        """A client says all it has."""
        known = self.clients[client]
        waiting = list(known.waiting.values())
        for request in sorted(waiting, key=lambda request: request.priority):
            self.arrival[request.ticket] = next(self.arrivals)
        actions, lost = self.core.rejoin(client, list(known.held.values()), waiting, self.now)
        assert not (lost and self.core.recovering), "a lease was lost"
        for ticket in lost:
            del known.held[ticket]
        self.do(actions, repeated=True)

    def client(self, name: str) -> WorldClient:
        """A client, a new one when there is none of the name."""
        return self.clients.setdefault(name, WorldClient())

    # Actions

    def do(self, actions: list[Action], *, repeated: bool = False) -> None:
        """Carry actions out; what takes time waits until the test says so."""
        self.actions += actions
        for action in actions:
            match action:
                case Grant(lease=lease):
                    self._granted(action, lease, repeated=repeated)
                case Reject(ticket=ticket, client=client):
                    self.rejects.append(action)
                    if client in self.clients:
                        self.clients[client].waiting.pop(ticket, None)
                case LeaseEnded(how=how):
                    self.ended[how] += 1
                case StartHost(pool=pool, host=host, slots=slots):
                    assert host not in self.hosts, "host ids are never used again"
                    self.hosts[host] = WorldHost(pool, slots)
                    self._check_room(pool)
                case StopHost(host=host):
                    assert not any(lease.host == host for lease in self._all_leases()), "stopped under a lessee"
                    self.hosts.pop(host, None)
                    self.resets = [reset for reset in self.resets if reset.host != host]
                case ResetSlot(host=host, slot=slot, epoch=epoch):
                    known = self.hosts[host]
                    assert epoch >= known.epochs[slot], "epochs only grow"
                    known.epochs[slot] = epoch
                    self.resets.append(action)
                case ClientGone(client=client):
                    self.clients.pop(client, None)
                case CheckHost():
                    self.checks.append(action)
        self.check()

    def _granted(self, grant: Grant, lease: Lease, *, repeated: bool) -> None:
        client = self.clients.get(lease.client)
        assert client is not None, "granted to a dead client"
        assert not self.core.recovering, "granted before all have spoken"
        request = client.waiting.pop(lease.ticket, None)
        if request is None:
            assert repeated, "granted twice"
            assert client.held[lease.ticket][1] == lease, "a repeated answer differs"
            return
        host = self.hosts[lease.host]
        assert host.ready, "granted before the start"
        self._check_turn(request)
        place = (lease.host, lease.slot)
        mates = [
            other
            for known in self.clients.values()
            for asked, other in known.held.values()
            if (other.host, other.slot) == place and request.share and asked.share == request.share
        ]
        if mates:
            assert all(mate.epoch == lease.epoch for mate in mates), "those who share have one lease"
        else:
            assert lease.epoch > self.last_epoch.get(place, 0), "an epoch was used again"
            assert lease.epoch >= host.epochs[lease.slot], "the host would refuse this lease"
        self.last_epoch[place] = lease.epoch
        self.grants.append(grant)
        client.held[lease.ticket] = (request, lease)

    def _check_turn(self, request: Request) -> None:
        if request.share:
            return  # comes with the first of those who share
        turn = (request.priority, self.arrival[request.ticket])
        for known in self.clients.values():
            for other in known.waiting.values():
                # Those with claims may be passed over.
                if other.pool == request.pool and not other.holder:
                    assert turn < (other.priority, self.arrival[other.ticket]), "served before its turn"

    def _forget(self, host_id: str) -> str:
        host = self.hosts.pop(host_id)
        self.resets = [reset for reset in self.resets if reset.host != host_id]
        for known in self.clients.values():
            for ticket in [ticket for ticket, (_, lease) in known.held.items() if lease.host == host_id]:
                del known.held[ticket]
        return host.pool

    def _check_room(self, key: str) -> None:
        """Nothing is started over the bound; what retires counts as far as it is in use."""
        assert not self.core.recovering, "started before all have spoken"
        hosts = next(pool.hosts for pool in self.core.pools if pool.key == key)
        limits = self.pools[key]
        in_use = {(lease.host, lease.slot) for lease in self._all_leases()}
        in_use |= {(reset.host, reset.slot) for reset in self.resets}
        size = 0
        for host in hosts:
            busy = sum((host.id, index) in in_use for index in range(len(host.slots)))
            size += busy if host.retiring and not limits.shared else len(host.slots)
        assert size <= limits.max_size, "started over the bound"

    # What must hold

    def check(self) -> None:
        """The promises that hold at every moment."""
        if self.core.recovering or not self.checked:
            return
        for pool in self.core.pools:
            self._check_leases(pool.key)
            self._check_nobody_waits(pool.key)
        self._check_counts()

    def _check_leases(self, key: str) -> None:
        places: dict[tuple[str, int], set[str]] = {}
        for known in self.clients.values():
            for request, lease in known.held.values():
                if lease.pool == key:
                    share = request.share or lease.ticket
                    places.setdefault((lease.host, lease.slot), set()).add(share)
        assert all(len(shares) == 1 for shares in places.values()), f"a slot of {key} is leased twice"
        assert all(place[0] in self.hosts for place in places)
        resetting = {(reset.host, reset.slot) for reset in self.resets}
        assert not resetting & places.keys(), "leased in the middle of a reset"

    def _check_nobody_waits(self, key: str) -> None:
        pool = next(pool for pool in self.core.pools if pool.key == key)
        free = any(host.free and not host.retiring for host in pool.hosts)
        waiting = {r.ticket for known in self.clients.values() for r in known.waiting.values() if r.pool == key}
        assert {waiter.request.ticket for waiter in pool.waiting} == waiting, "the queue isn't those who wait"
        stats = pool.stats()
        if free and stats.leased < self.pools[key].max_size:
            assert all(waiter.request.holder for waiter in pool.waiting), "waits while a slot is free"
        assert stats.leased <= max(limits.max_size for limits in (self.pools[key], self.widest[key]))

    def _check_counts(self) -> None:
        """What the core counts as it goes equals a count from scratch."""
        for pool in self.core.pools:
            stats = pool.stats()
            states = Counter(slot.state.value for host in pool.hosts for slot in host.slots)
            assert (stats.idle, stats.leased, stats.starting, stats.resetting) == (
                states["idle"],
                states["leased"],
                states["starting"],
                states["resetting"],
            )
            for host in pool.hosts:
                assert sorted(host.free) == [i for i, slot in enumerate(host.slots) if slot.state.value == "idle"]
                assert host.busy == sum(slot.state.value in ("leased", "resetting") for slot in host.slots)
            mine = {
                ticket for known in self.clients.values() for ticket, (r, _) in known.held.items() if r.pool == pool.key
            }
            assert {lease.ticket for lease in pool.leases} == mine, "the core's leases aren't the clients'"

    def _all_leases(self) -> list[Lease]:
        return [lease for known in self.clients.values() for _, lease in known.held.values()]

    # Ends

    def settle(self) -> None:
        """Let everything that has begun end well, and all that is held come back, until nothing happens."""
        for _ in range(10_000):
            for host_id in [host_id for host_id, host in self.hosts.items() if not host.ready]:
                if host_id in self.hosts:
                    self.start(host_id)
            while self.resets:
                self.reset(0, ok=True)
            held = [(name, ticket) for name, known in self.clients.items() for ticket in known.held]
            if held:
                self.release(*held[0])
            elif any(known.waiting for known in self.clients.values()):
                self.advance(5.0)
            else:
                return
        raise AssertionError("somebody waits for ever")
