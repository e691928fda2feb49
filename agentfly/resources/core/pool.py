"""One pool: who waits, who has which slot, which hosts there are. Pure: events and the time in, actions out."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from agentfly.resources.core.hosts import Host, Slot, SlotState
from agentfly.resources.core.types import (
    Action,
    Grant,
    Lease,
    PoolLimits,
    PoolStats,
    Reject,
    Request,
    ResetSlot,
    StartHost,
    StopHost,
)
from agentfly.resources.core.waiting import Waiter, WaitQueue

_FIRST_BACKOFF = 0.5
_MAX_BACKOFF = 30.0
_RECENT = 1000


class Pool:
    """The state machine of one pool.

    Every method takes the present time in seconds and returns what is to be done about it. At every moment: a
    slot has at most one lease; nobody waits while a slot is idle in a host that isn't retiring; waiters are
    served by priority, then in order of arrival; the epochs of a slot only grow.
    """

    def __init__(self, key: str, limits: PoolLimits) -> None:
        self.key = key
        self.limits = limits
        self._queue = WaitQueue()
        self._hosts: dict[str, Host] = {}
        self._open: dict[str, Host] = {}  # hosts with a free slot, the longest open first
        self._leases: dict[str, Lease] = {}
        self._names = itertools.count()
        self._round = 0
        self._failures = 0
        self._broken: tuple[float, str] | None = None
        self._recent_waits: deque[float] = deque(maxlen=_RECENT)
        self._recent_holds: deque[float] = deque(maxlen=_RECENT)
        self._granted_at: dict[str, float] = {}
        self._counts = dict.fromkeys(("leases", "starts", "start_failures", "resets", "reset_failures", "deaths"), 0)

    # Requests

    def acquire(self, request: Request, now: float) -> list[Action]:
        """A request arrives; the same ticket again repeats the answer and changes nothing."""
        if (lease := self._leases.get(request.ticket)) is not None:
            return [Grant(lease, 0.0)]
        if request.ticket in self._queue:
            return []
        if self._broken is not None and now < self._broken[0]:
            return [self._start_failed(request, self._broken[1])]
        if len(self._queue) >= self.limits.max_waiting and not self._open:
            return [self._saturated(request)]
        self._queue.push(request, now)
        return self._serve(now)

    def cancel(self, ticket: str, now: float) -> list[Action]:
        """The requester has lost interest: out of the queue, or the lease back."""
        if self._queue.remove(ticket) is not None:
            return []
        return self.release(ticket, now)

    def release(self, ticket: str, now: float) -> list[Action]:
        """A lease ends. Ending it twice, or one that died with its host, changes nothing."""
        lease = self._leases.pop(ticket, None)
        if lease is None:
            return []
        self._recent_holds.append(now - self._granted_at.pop(ticket))
        host = self._hosts[lease.host]
        slot = host.slots[lease.slot]
        slot.epoch += 1
        slot.uses += 1
        if self.limits.shared:
            self._free(host, lease.slot, now)
            return self._settle(host, now)
        return [self._reset(host, lease.slot, now), *self._settle(host, now)]

    # Hosts

    def host_ready(self, host_id: str, now: float) -> list[Action]:
        """A host has started all its slots."""
        host = self._hosts.get(host_id)
        if host is None or host.ready:
            return []
        host.ready = True
        self._failures = 0
        self._broken = None
        self._counts["starts"] += 1
        for index, slot in enumerate(host.slots):
            slot.born = now
            self._free(host, index, now)
        return self._settle(host, now)

    def host_failed(self, host_id: str, reason: str, now: float) -> list[Action]:
        """A host could not be started; after `start_retries` in a row those who wait are told."""
        host = self._hosts.get(host_id)
        if host is None:
            return []
        self._forget(host)
        self._counts["start_failures"] += 1
        return self._failed(host.round, reason, now)

    def host_died(self, host_id: str, now: float) -> list[Action]:
        """A host is gone, and all leases in it with it."""
        host = self._hosts.get(host_id)
        if host is None:
            return []
        self._counts["deaths"] += 1
        self._forget(host)
        return self._serve(now)

    def slot_reset(self, host_id: str, index: int, ok: bool, reason: str, now: float) -> list[Action]:
        """A reset (or a renewal) has ended."""
        host = self._hosts.get(host_id)
        if host is None or host.slots[index].state is not SlotState.RESETTING:
            return []
        slot = host.slots[index]
        self._counts["resets" if ok else "reset_failures"] += 1
        if ok:
            if slot.renewing:
                slot.uses, slot.born, slot.renewing = 0, now, False
                self._failures = 0
            self._free(host, index, now)
            return self._settle(host, now)
        if not slot.renewing:
            slot.renewing = True
            return [ResetSlot(self.key, host.id, index, slot.epoch, renew=True)]
        slot.state = SlotState.BROKEN
        self._retire(host)
        return [*self._settle(host, now), *self._failed(host.round, reason, now)]

    # Time and size

    def tick(self, now: float) -> list[Action]:
        """Time passes: renew what is too old, give back what nobody needs, keep what is to be kept."""
        actions: list[Action] = []
        if self.limits.max_age is not None:
            actions += self._renew_old(now, self.limits.max_age)
        if self.limits.idle_ttl is not None and not self._queue:
            actions += self._shrink(now, self.limits.idle_ttl)
        return actions + self._serve(now)

    def resize(self, min_size: int, max_size: int, now: float) -> list[Action]:
        """Change the bounds while the pool works; surplus hosts end with their last lease."""
        self.limits = replace(self.limits, min_size=min_size, max_size=max_size)
        actions: list[Action] = []
        by_load = sorted((host for host in self._hosts.values() if not host.retiring), key=lambda host: host.busy)
        for host in by_load:
            if self._size() <= max_size:
                break
            self._retire(host)
            actions += self._stop_if_done(host)
        return actions + self._serve(now)

    def stop(self) -> list[Action]:
        """End the pool: waiters are refused, hosts stopped, leases void."""
        actions: list[Action] = [
            Reject(waiter.request.ticket, waiter.request.client, "start_failed", f"pool {self.limits.name} is stopped")
            for waiter in self._queue.drain()
        ]
        for host in list(self._hosts.values()):
            self._forget(host)
            actions.append(StopHost(self.key, host.id))
        return actions

    def stats(self) -> PoolStats:
        """The pool at this moment."""
        states = [slot.state for host in self._hosts.values() for slot in host.slots]
        waits = sorted(self._recent_waits)
        return PoolStats(
            name=self.limits.name,
            size=len(states),
            starting=states.count(SlotState.STARTING),
            idle=states.count(SlotState.IDLE),
            leased=states.count(SlotState.LEASED),
            resetting=states.count(SlotState.RESETTING),
            waiting=len(self._queue),
            hosts=len(self._hosts),
            wait_p50=waits[len(waits) // 2] if waits else 0.0,
            wait_p99=waits[min(len(waits) - 1, len(waits) * 99 // 100)] if waits else 0.0,
            **self._counts,
        )

    @property
    def hosts(self) -> Iterable[Host]:
        """All hosts."""
        return self._hosts.values()

    @property
    def leases(self) -> Iterable[Lease]:
        """All leases."""
        return self._leases.values()

    # What follows from an event

    def _serve(self, now: float) -> list[Action]:
        """Grant what can be granted, then grow by what can't."""
        actions: list[Action] = []
        while self._open and self._queue:
            actions.append(self._grant(self._queue.pop(), now))
        actions += self._grow()
        return actions

    def _grant(self, waiter: Waiter, now: float) -> Grant:
        host = self._next_host()
        index = host.free.pop()
        if not host.free:
            del self._open[host.id]
        slot = host.slots[index]
        slot.state = SlotState.LEASED
        host.idle_since = None
        request = waiter.request
        lease = Lease(request.ticket, request.client, self.key, host.id, index, slot.epoch)
        self._leases[request.ticket] = lease
        self._granted_at[request.ticket] = now
        self._counts["leases"] += 1
        waited = now - waiter.since
        self._recent_waits.append(waited)
        return Grant(lease, waited)

    def _next_host(self) -> Host:
        """Shared: the host with the most room, so that load is even. Exclusive: the longest open, so that others
        run empty and can be given back."""
        if self.limits.shared:
            return max(self._open.values(), key=lambda host: len(host.free))
        return next(iter(self._open.values()))

    def _grow(self) -> list[Action]:
        coming = (
            sum(slot.state in (SlotState.STARTING, SlotState.RESETTING) for host in self._live() for slot in host.slots)
            if self._queue
            else 0
        )
        wanted = max(self.limits.min_size - self._size(), len(self._queue) - coming)
        actions: list[Action] = []
        delay = min(_MAX_BACKOFF, _FIRST_BACKOFF * 2 ** (self._failures - 1)) if self._failures else 0.0
        while wanted > 0 and (slots := min(self.limits.slots, self.limits.max_size - self._size())) > 0:
            host = Host(f"{self.key}-{next(self._names)}", [Slot() for _ in range(slots)], self._round)
            self._hosts[host.id] = host
            actions.append(StartHost(self.key, host.id, slots, delay))
            wanted -= slots
        return actions

    def _settle(self, host: Host, now: float) -> list[Action]:
        """After a slot of the host has changed: stop it if that was all it waited for, then serve."""
        if not host.busy and host.idle_since is None:
            host.idle_since = now
        return [*self._stop_if_done(host), *self._serve(now)]

    def _stop_if_done(self, host: Host) -> list[Action]:
        if not host.retiring or host.busy or host.id not in self._hosts:
            return []
        self._forget(host)
        return [StopHost(self.key, host.id)]

    def _failed(self, round_: int, reason: str, now: float) -> list[Action]:
        """Count a failed start, at most once for the starts that were tried together."""
        if round_ == self._round:
            self._round += 1
            self._failures += 1
        if self._failures <= self.limits.start_retries:
            return self._serve(now)
        self._broken = (now + _MAX_BACKOFF, reason)
        return [self._start_failed(waiter.request, reason) for waiter in self._queue.drain()]

    def _renew_old(self, now: float, max_age: float) -> list[Action]:
        actions: list[Action] = []
        for host in list(self._open.values()):
            for index, slot in list(host.idle_slots()):
                if now - slot.born > max_age and not self.limits.shared:
                    host.free.remove(index)
                    slot.epoch += 1
                    actions.append(self._reset(host, index, now))
            if not host.free:
                self._open.pop(host.id, None)
        return actions

    def _shrink(self, now: float, ttl: float) -> list[Action]:
        actions: list[Action] = []
        for host in list(self._hosts.values()):
            rested = host.ready and host.idle_since is not None and not host.busy and now - host.idle_since >= ttl
            if rested and self._size() - len(host.slots) >= self.limits.min_size:
                self._retire(host)
                actions += self._stop_if_done(host)
        return actions

    # Small steps

    def _reset(self, host: Host, index: int, now: float) -> ResetSlot:
        slot = host.slots[index]
        used_up = self.limits.max_uses is not None and slot.uses >= self.limits.max_uses
        too_old = self.limits.max_age is not None and now - slot.born > self.limits.max_age
        slot.state = SlotState.RESETTING
        slot.renewing = used_up or too_old
        return ResetSlot(self.key, host.id, index, slot.epoch, slot.renewing)

    def _free(self, host: Host, index: int, now: float) -> None:
        host.slots[index].state = SlotState.IDLE
        host.free.append(index)
        if not host.retiring:
            self._open[host.id] = host
        if not host.busy:
            host.idle_since = now

    def _retire(self, host: Host) -> None:
        host.retiring = True
        self._open.pop(host.id, None)

    def _forget(self, host: Host) -> None:
        del self._hosts[host.id]
        self._open.pop(host.id, None)
        for ticket in [lease.ticket for lease in self._leases.values() if lease.host == host.id]:
            del self._leases[ticket]
            del self._granted_at[ticket]

    def _live(self) -> Iterator[Host]:
        return (host for host in self._hosts.values() if not host.retiring)

    def _size(self) -> int:
        return sum(len(host.slots) for host in self._live())

    def _start_failed(self, request: Request, reason: str) -> Reject:
        message = f"resource {self.limits.name!r} can't be started: {reason}"
        return Reject(request.ticket, request.client, "start_failed", message)

    def _saturated(self, request: Request) -> Reject:
        waiting = len(self._queue)
        estimate = self._estimate(waiting)
        message = f"the queue of pool {self.limits.name!r} is full ({waiting} wait, {self._size()} slots): try later"
        return Reject(request.ticket, request.client, "saturated", message, waiting, estimate)

    def _estimate(self, waiting: int) -> float | None:
        """Seconds until the queue has moved by one, from recent holding times; None when nothing is known."""
        size = self._size()
        if not self._recent_holds or size == 0:
            return None
        return math.fsum(self._recent_holds) / len(self._recent_holds) / size
