"""One pool: who waits and who has which slot. Pure: events and the time in, actions out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentfly.resources.core.claims import ClaimLedger
from agentfly.resources.core.history import History
from agentfly.resources.core.hosts import Host, SlotState
from agentfly.resources.core.keeper import HostKeeper
from agentfly.resources.core.types import (
    Action,
    Ending,
    Grant,
    Lease,
    LeaseEnded,
    PoolLimits,
    PoolStats,
    Refusal,
    Reject,
    Request,
    StopHost,
)
from agentfly.resources.core.waiting import Waiter, WaitQueue


@dataclass(slots=True, eq=False)
class _Held:
    """A lease in somebody's hands.

    Attributes:
        unit: it stands for the slot; the others who share its lease don't.
    """

    request: Request
    lease: Lease
    waited: float
    since: float
    unit: bool


class Pool:
    """The state machine of one pool.

    Every method takes the present time in seconds and returns what is to be done about it. At every moment: a
    slot has at most one lease, which several may share if they say so; nobody waits while a slot is free that he
    could have; waiters are served by priority, then in order of arrival; the epochs of a slot only grow.

    Args:
        claims: what holders have and may claim, over all pools.
        prefix: begins the ids of its hosts.
    """

    def __init__(self, key: str, limits: PoolLimits, claims: ClaimLedger, prefix: str) -> None:
        self.key = key
        self.recovering = False
        self._claims = claims
        self._history = History()
        self._keeper = HostKeeper(key, limits, self._history, prefix)
        self._fleet = self._keeper.fleet
        self._queue = WaitQueue()
        self._held: dict[str, _Held] = {}
        self._shares: dict[str, dict[str, None]] = {}  # share -> tickets that have it
        self._share_waiters: dict[str, set[str]] = {}
        claims.set_capacity(key, limits.max_size)

    # Requests

    def acquire(self, request: Request, now: float) -> list[Action]:
        """A request arrives; the same ticket again repeats the answer and changes nothing."""
        if (held := self._held.get(request.ticket)) is not None:
            return [Grant(held.lease, held.waited)]
        if request.ticket in self._queue:
            return []
        if request.share in self._shares and request.share:
            lease = self._held[next(iter(self._shares[request.share]))].lease
            return [self._hand_out(request, lease, now, now, unit=False)]
        if self._keeper.breaker.is_open(now) and not self._fleet.live_size:
            return [self._start_failed(request)]
        if len(self._queue) >= self._keeper.limits.max_waiting and not self._has_room:
            return [self._saturated(request)]
        if self._keeper.limits.spares == "auto" and request.share not in self._share_waiters:
            self._history.arrivals.add(now)
        turn = self._claims.new_turn(request)
        self._queue.push(Waiter(request, now, turn, self._claims.wants(request, turn)))
        if request.share:
            self._share_waiters.setdefault(request.share, set()).add(request.ticket)
        return self.serve(now)

    def withdraw(self, ticket: str) -> bool:
        """A request leaves the queue; returns whether it was there."""
        waiter = self._queue.remove(ticket)
        if waiter is None:
            return False
        self._left(waiter.request)
        return True

    def release(self, ticket: str, now: float, how: Ending = "released") -> list[Action]:
        """A lease ends. Ending it twice, or one that died with its host, changes nothing."""
        held = self._held.pop(ticket, None)
        if held is None:
            return []
        host = self._fleet.get(held.lease.host)
        assert host is not None, "the leases of a lost host are void"
        host.tickets.discard(ticket)
        ended = self._ended(held, now, how)
        if held.request.share and not self._last_of_share(held):
            return [ended]
        self._claims.gave(held.request, unit=True)
        self._history.hold.add(now - held.since)
        freed = self._keeper.freed(host, held.lease.slot, now, given_back=how == "released")
        return [ended, *freed, *self.serve(now)]

    def refuse(self, ticket: str, error: Refusal, message: str) -> list[Action]:
        """A request in the queue is answered with an error."""
        waiter = self._queue.remove(ticket)
        if waiter is None:
            return []
        self._left(waiter.request)
        return [Reject(ticket, waiter.request.client, error, message)]

    def serve(self, now: float) -> list[Action]:
        """Grant what can be granted, then grow by what can't."""
        if self.recovering:
            return []
        actions: list[Action] = []
        while self._fleet.rooms and self._has_room and self._queue and (waiter := self._next()) is not None:
            actions += self._grant(waiter, now)
        if self._fleet.live_size < self._keeper.limits.max_size:
            actions += self._keeper.grow(len(self._queue), self._oldest_wait, now)
        return actions

    # Hosts

    def host_ready(self, host_id: str, now: float) -> list[Action]:
        """A host has started all its slots."""
        host = self._fleet.get(host_id)
        if host is None or host.ready:
            return []
        self._keeper.host_ready(host, now)
        return self.serve(now)

    def host_failed(self, host_id: str, reason: str, now: float) -> list[Action]:
        """A host could not be started; after too many in a row those who wait for nothing else are told."""
        host = self._fleet.get(host_id)
        if host is None:
            return []
        return self._after_failure(self._keeper.host_failed(host, reason, now), now)

    def host_died(self, host_id: str, now: float) -> list[Action]:
        """A host is gone, and all leases in it with it."""
        host = self._fleet.get(host_id)
        if host is None:
            return []
        void = self._void(host, now, "host_died")
        return void + self._after_failure(self._keeper.host_died(host, now), now)

    def slot_reset(self, host_id: str, index: int, ok: bool, reason: str, now: float) -> list[Action]:
        """A reset or a renewal has ended."""
        host = self._fleet.get(host_id)
        if host is None or host.slots[index].state is not SlotState.RESETTING:
            return []
        actions, gives_up = self._keeper.slot_reset(host, index, ok, reason, now)
        return actions + self._after_failure(gives_up, now)

    def unhealthy(self, host_id: str, index: int, epoch: int, now: float) -> list[Action]:
        """A health check has failed: of an idle resource, or of the one that all leases of a host share."""
        host = self._fleet.get(host_id)
        if host is None:
            return []
        if self._keeper.limits.shared:
            return [*self.host_died(host_id, now), StopHost(self.key, host_id)]
        return [*self._keeper.unhealthy(host, index, epoch), *self.serve(now)]

    # After a restart of the manager

    def host_found(self, host_id: str, epochs: Iterable[int], now: float) -> None:
        """A host that an earlier manager started is alive."""
        if self._fleet.get(host_id) is None:
            self._keeper.host_found(host_id, epochs, now)

    def adopt(self, request: Request, lease: Lease, now: float) -> bool:
        """A client says what it holds; false when that has ended."""
        host = self._fleet.get(lease.host)
        if host is None or lease.slot >= len(host.slots):
            return False
        slot = host.slots[lease.slot]
        mates = self._shares.get(request.share, {}) if request.share else {}
        joins = any(self._held[mate].lease[3:] == lease[3:] for mate in mates)
        if not joins and (slot.state is not SlotState.UNKNOWN or lease.epoch < slot.epoch or mates):
            return False
        if not joins:
            slot.epoch = lease.epoch
            self._fleet.move(host, lease.slot, SlotState.LEASED)
        self._keep(request, lease, 0.0, now, unit=not joins)
        return True

    def recovered(self, epoch_floor: int, now: float) -> list[Action]:
        """All clients have spoken; what nobody holds is free, under epochs from the floor on."""
        self.recovering = False
        return [*self._keeper.settle_unknown(epoch_floor, now), *self.serve(now)]

    # Time and size

    def tick(self, now: float) -> list[Action]:
        """Time passes."""
        if self.recovering:
            return []
        return [*self._keeper.tick(len(self._queue), now), *self.serve(now)]

    def resize(self, min_size: int, max_size: int, now: float) -> list[Action]:
        """Change the bounds while the pool works. A maximum of 0 drains it: those who wait go on waiting."""
        self._claims.set_capacity(self.key, max_size)
        return [*self._keeper.resize(min_size, max_size, now), *self.serve(now)]

    def stop(self, now: float) -> list[Action]:
        """End the pool: waiters are refused, leases void, hosts stopped."""
        message = f"pool {self._keeper.limits.name!r} is stopped"
        actions = self._refuse_all("stopped", message)
        for host in list(self._fleet.hosts):
            actions += self._void(host, now, "stopped")
            self._fleet.remove(host)
            actions.append(StopHost(self.key, host.id))
        return actions

    def stats(self) -> PoolStats:
        """The pool at this moment."""
        median, high = self._history.wait_quantiles()
        return PoolStats(
            key=self.key,
            name=self._keeper.limits.name,
            min_size=self._keeper.limits.min_size,
            max_size=self._keeper.limits.max_size,
            size=self._fleet.count(*SlotState),
            starting=self._fleet.count(SlotState.STARTING),
            idle=self._fleet.count(SlotState.IDLE),
            leased=self._fleet.count(SlotState.LEASED),
            resetting=self._fleet.count(SlotState.RESETTING),
            waiting=len(self._queue),
            hosts=len(self._fleet),
            wait_p50=median,
            wait_p99=high,
            **self._history.counts,
        )

    @property
    def hosts(self) -> Iterable[Host]:
        """All hosts."""
        return self._fleet.hosts

    @property
    def leases(self) -> Iterable[Lease]:
        """All leases, those that are shared once for each who has them."""
        return [held.lease for held in self._held.values()]

    @property
    def waiting(self) -> Iterable[Waiter]:
        """Those in the queue, by turn."""
        return self._queue.ordered()

    def has_lease(self, ticket: str) -> bool:
        """Whether the ticket holds a lease."""
        return ticket in self._held

    # Inside

    @property
    def _has_room(self) -> bool:
        # Hosts that retire still carry leases, which count.
        return self._fleet.rooms != 0 and self._fleet.leased < self._keeper.limits.max_size

    def _next(self) -> Waiter | None:
        """Take the first who may be served from the queue."""
        claims, queue = self._claims, self._queue
        for ticket in claims.relaned(self.key):
            queue.relane(ticket, claims.lane)
        claims.blocked.discard(self.key)
        passed: list[Waiter] = []
        for waiter in queue.heads():
            if claims.may_grant(waiter):
                for other in passed:
                    claims.overtook(other)
                return queue.remove(waiter.request.ticket)
            passed.append(waiter)
        claims.blocked.add(self.key)
        return None

    def _grant(self, waiter: Waiter, now: float) -> list[Action]:
        request = waiter.request
        host, index = self._fleet.take()
        host.idle_since = None
        lease = Lease(request.ticket, request.client, self.key, host.id, index, host.slots[index].epoch)
        actions: list[Action] = [self._hand_out(request, lease, waiter.since, now, unit=True)]
        if request.share:
            mates = [self._queue.remove(ticket) for ticket in self._share_waiters.pop(request.share, ())]
            for mate in sorted((mate for mate in mates if mate), key=lambda mate: mate.turn):
                actions.append(self._hand_out(mate.request, lease, mate.since, now, unit=False))
        return actions

    def _hand_out(self, request: Request, lease: Lease, since: float, now: float, *, unit: bool) -> Grant:
        if not unit:
            lease = lease._replace(ticket=request.ticket, client=request.client)
        self._history.granted(now - since)
        self._keep(request, lease, now - since, now, unit=unit)
        self._claims.left(request)
        return Grant(lease, now - since)

    def _keep(self, request: Request, lease: Lease, waited: float, now: float, *, unit: bool) -> None:
        self._held[request.ticket] = _Held(request, lease, waited, now, unit)
        host = self._fleet.get(lease.host)
        assert host is not None, "leases are of hosts that there are"
        host.tickets.add(request.ticket)
        if request.share:
            self._shares.setdefault(request.share, {})[request.ticket] = None
        self._claims.took(request, unit=unit)

    def _last_of_share(self, held: _Held) -> bool:
        """Take one who shares a lease out; whether nobody else has it."""
        share = held.request.share
        if not share:
            return True
        mates = self._shares[share]
        del mates[held.request.ticket]
        if not mates:
            del self._shares[share]
            return True
        if held.unit:
            heir = self._held[next(iter(mates))]
            heir.unit = True
            self._claims.passed_on(held.request, heir.request)
        self._claims.gave(held.request, unit=False)
        return False

    def _left(self, request: Request) -> None:
        self._claims.left(request)
        if request.share and (waiters := self._share_waiters.get(request.share)) is not None:
            waiters.discard(request.ticket)
            if not waiters:
                del self._share_waiters[request.share]

    def _void(self, host: Host, now: float, how: Ending) -> list[Action]:
        """All leases of a host end with it."""
        actions: list[Action] = []
        for ticket in sorted(host.tickets):
            held = self._held.pop(ticket)
            self._claims.gave(held.request, unit=held.unit)
            self._shares.pop(held.request.share, None)
            actions.append(self._ended(held, now, how))
        host.tickets.clear()
        return actions

    def _after_failure(self, gives_up: bool, now: float) -> list[Action]:
        # As long as some host works, those who wait will have their turn.
        if gives_up and not self._fleet.live_size:
            reason = self._keeper.breaker.reason
            return self._refuse_all("start_failed", self._cannot_start(reason))
        return self.serve(now)

    def _refuse_all(self, error: Refusal, message: str) -> list[Action]:
        tickets = [waiter.request.ticket for waiter in self._queue.ordered()]
        return [action for ticket in tickets for action in self.refuse(ticket, error, message)]

    def _oldest_wait(self, now: float) -> float:
        head = self._queue.first()
        return 0.0 if head is None else now - head.since

    def _ended(self, held: _Held, now: float, how: Ending) -> LeaseEnded:
        return LeaseEnded(held.lease, held.request.holder, held.waited, now - held.since, how)

    def _start_failed(self, request: Request) -> Reject:
        message = self._cannot_start(self._keeper.breaker.reason)
        return Reject(request.ticket, request.client, "start_failed", message)

    def _cannot_start(self, reason: str) -> str:
        return f"resource {self._keeper.limits.name!r} can't be started: {reason}"

    def _saturated(self, request: Request) -> Reject:
        waiting, size = len(self._queue), self._fleet.size
        name = self._keeper.limits.name
        message = f"the queue of pool {name!r} is full ({waiting} wait, {size} slots): try later"
        # The queue moves by one whenever one of the leases ends.
        hold = self._history.hold.value
        estimate = hold / size if hold is not None and size else None
        return Reject(request.ticket, request.client, "saturated", message, waiting, estimate)
