"""The hosts of one pool: when to start, reset, renew, check and stop them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace

from agentfly.resources.core.fleet import Fleet
from agentfly.resources.core.history import History
from agentfly.resources.core.hosts import Host, Slot, SlotState
from agentfly.resources.core.starts import StartBreaker
from agentfly.resources.core.types import Action, CheckHost, PoolLimits, ResetSlot, StartHost, StopHost


class HostKeeper:
    """Keeps a pool's hosts; knows nothing of those who wait but their number.

    Args:
        key: of the pool.
        prefix: begins the ids of new hosts; unique among all managers that the job has had.
    """

    def __init__(self, key: str, limits: PoolLimits, history: History, prefix: str) -> None:
        self._key = key
        self._prefix = prefix
        self._history = history
        self._names = itertools.count()
        self.limits = limits
        self.breaker = StartBreaker(limits.start_retries)
        # A pool whose size never changes gains nothing from leaving hosts empty.
        self.fleet = Fleet(pack=not limits.shared and limits.min_size < limits.max_size)

    # Hosts come and go

    def host_ready(self, host: Host, now: float) -> None:
        """A host has started all its slots."""
        host.ready = True
        host.born = host.checked = host.idle_since = now
        self.breaker.started()
        self._history.counts["starts"] += 1
        self._history.start.add(now - host.asked)
        for index, slot in enumerate(host.slots):
            slot.born = now
            self.fleet.move(host, index, SlotState.IDLE)

    def host_failed(self, host: Host, reason: str, now: float) -> bool:
        """A host could not be started; returns whether to give up for now."""
        self.fleet.remove(host)
        self._history.counts["start_failures"] += 1
        return self.breaker.failed(host.round, reason, now)

    def host_died(self, host: Host, now: float) -> bool:
        """A host is gone; returns whether to give up for now."""
        self.fleet.remove(host)
        self._history.counts["deaths"] += 1
        if host.served or not host.ready:
            return False
        return self.breaker.died_early(host.round, now)

    def host_found(self, host_id: str, epochs: Iterable[int], now: float) -> None:
        """A host of the manager before this one is alive; what is in its slots isn't known yet."""
        slots = [Slot(SlotState.UNKNOWN, epoch=epoch, born=now) for epoch in epochs]
        self.fleet.add(Host(host_id, slots, ready=True, born=now, checked=now))

    def settle_unknown(self, epoch_floor: int, now: float) -> list[Action]:
        """Nobody else will say that he holds a slot of a found host: take them into use."""
        # Some may have been about to be given back: there can be more than the bounds allow.
        actions = self.resize(self.limits.min_size, self.limits.max_size, now)
        for host in list(self.fleet.hosts):
            for index, slot in enumerate(host.slots):
                if slot.state is SlotState.UNKNOWN:
                    slot.epoch = max(slot.epoch + 1, epoch_floor)
                    actions += self._clean(host, index, now)
            self._rest(host, now)
        return actions

    # Slots

    def freed(self, host: Host, index: int, now: float, *, given_back: bool) -> list[Action]:
        """A lease has ended.

        Args:
            given_back: by its holder, who won't call any more; else the host has to be told.
        """
        slot = host.slots[index]
        slot.epoch += 1
        slot.uses += 1
        host.served += 1
        self.breaker.served()
        actions = self._clean(host, index, now, given_back=given_back)
        if self.limits.shared and self.limits.max_uses is not None and host.served >= self.limits.max_uses:
            self.fleet.retire(host)
        return actions if host.busy else actions + self._rest(host, now)

    def slot_reset(self, host: Host, index: int, ok: bool, reason: str, now: float) -> tuple[list[Action], bool]:
        """A reset or a renewal has ended; returns also whether to give up starting for now."""
        slot = host.slots[index]
        self._history.counts["resets" if ok else "reset_failures"] += 1
        if ok:
            if slot.renewing:
                slot.uses, slot.born, slot.renewing = 0, now, False
            self.fleet.move(host, index, SlotState.IDLE)
            return [] if host.busy else self._rest(host, now), False
        if not slot.renewing:
            slot.renewing = True
            return [ResetSlot(self._key, host.id, index, slot.epoch, renew=True)], False
        # What can't be replaced in this process may be in another one.
        self.fleet.move(host, index, SlotState.BROKEN)
        self.fleet.retire(host)
        return self._rest(host, now), self.breaker.failed(self.breaker.round, reason, now)

    def unhealthy(self, host: Host, index: int, epoch: int) -> list[Action]:
        """An idle resource isn't well; if nobody has taken it since, another takes its place."""
        slot = host.slots[index]
        if slot.state is not SlotState.IDLE or slot.epoch != epoch:
            return []
        slot.epoch += 1
        return [self._reset(host, index, renew=True)]

    # Size

    def grow(self, waiting: int, oldest_wait: Callable[[float], float], now: float) -> list[Action]:
        """Start hosts for those who wait, the minimum, and the spares."""
        limits, fleet = self.limits, self.fleet
        missing = limits.min_size - fleet.live_size
        spares = self._spares(now)
        short = max(missing, waiting + spares - fleet.available)
        if short <= 0 or self._room_for() <= 0 or self.breaker.is_open(now):
            return []
        if waiting and self._served_soon(waiting, oldest_wait, now):
            short = max(missing, spares - fleet.available)
        actions: list[Action] = []
        while short > 0 and (slots := self._room_for()) > 0:
            if self.breaker.trying and fleet.count(SlotState.STARTING):
                break
            host = Host(
                f"{self._prefix}{next(self._names)}", [Slot() for _ in range(slots)], self.breaker.round, asked=now
            )
            fleet.add(host)
            actions.append(StartHost(self._key, host.id, slots, self.breaker.delay))
            short -= slots
        return actions

    def tick(self, waiting: int, now: float) -> list[Action]:
        """Renew what is too old, give back what nobody needs, ask the others how they are."""
        actions: list[Action] = []
        if self.limits.max_age is not None:
            actions += self._renew_old(self.limits.max_age, now)
        if self.limits.idle_ttl is not None and not waiting:
            actions += self._shrink(self.limits.idle_ttl, now)
        if self.limits.health_interval is not None:
            actions += self._checks(self.limits.health_interval, now)
        return actions

    def resize(self, min_size: int, max_size: int, now: float) -> list[Action]:
        """Change the bounds; surplus hosts, the least busy first, end with their last lease."""
        self.limits = replace(self.limits, min_size=min_size, max_size=max_size)
        actions: list[Action] = []
        live = [host for host in self.fleet.hosts if not host.retiring]
        for host in sorted(live, key=lambda host: host.busy):
            if self.fleet.live_size <= max_size:
                break
            self.fleet.retire(host)
            actions += self._rest(host, now)
        return actions

    # Inside

    def _served_soon(self, waiting: int, oldest_wait: Callable[[float], float], now: float) -> bool:
        """Whether the queue will be empty before a new host is up: then starting one helps nobody."""
        hold, start = self._history.hold.value, self._history.start.value
        leased = self.fleet.leased
        if hold is None or start is None or not leased:
            return False
        return waiting * hold < start * leased and oldest_wait(now) < start

    def _spares(self, now: float, *, giving_back: bool = False) -> int:
        """Idle slots to keep beside those in use."""
        spares = self.limits.spares
        if spares == "auto":
            return self._history.spares_wanted(self.fleet.leased, now, giving_back=giving_back)
        return spares

    def _room_for(self) -> int:
        """Slots of the next host."""
        limits = self.limits
        # An engine that retires still takes its place until it has ended; of sandboxes only the busy ones count.
        size = self.fleet.count(*SlotState) if limits.shared else self.fleet.size
        return min(limits.slots, limits.max_size - size)

    def _clean(self, host: Host, index: int, now: float, *, given_back: bool = False) -> list[Action]:
        """Make a slot that nobody has ready for the next, unless nothing is to be kept."""
        slot, limits = host.slots[index], self.limits
        if limits.shared or host.retiring:
            self.fleet.move(host, index, SlotState.IDLE)
            return []
        used_up = limits.max_uses is not None and slot.uses >= limits.max_uses
        too_old = limits.max_age is not None and now - slot.born > limits.max_age
        renew = used_up or too_old
        if given_back and not limits.resets and not renew:
            self.fleet.move(host, index, SlotState.IDLE)
            return []
        return [self._reset(host, index, renew=renew)]

    def _reset(self, host: Host, index: int, *, renew: bool) -> ResetSlot:
        slot = host.slots[index]
        slot.renewing = renew
        self.fleet.move(host, index, SlotState.RESETTING)
        host.idle_since = None
        return ResetSlot(self._key, host.id, index, slot.epoch, renew)

    def _rest(self, host: Host, now: float) -> list[Action]:
        """If nothing goes on in a host: stop it if that was what it waited for, else note since when."""
        if host.busy:
            return []
        if not host.retiring:
            if host.idle_since is None:
                host.idle_since = now
            return []
        self.fleet.remove(host)
        return [StopHost(self._key, host.id)]

    def _renew_old(self, max_age: float, now: float) -> list[Action]:
        actions: list[Action] = []
        for host in list(self.fleet.hosts):
            if self.limits.shared:
                if host.ready and now - host.born > max_age:
                    self.fleet.retire(host)
                    actions += self._rest(host, now)
                continue
            for index in list(host.free):
                slot = host.slots[index]
                if now - slot.born > max_age and not host.retiring:
                    slot.epoch += 1
                    actions.append(self._reset(host, index, renew=True))
        return actions

    def _shrink(self, ttl: float, now: float) -> list[Action]:
        actions: list[Action] = []
        spares = self._spares(now, giving_back=True)
        for host in list(self.fleet.hosts):
            if host.retiring or not host.ready or host.idle_since is None or now - host.idle_since < ttl:
                continue
            size = self.fleet.live_size - len(host.slots)
            idle = self.fleet.idle - len(host.free)
            if size >= self.limits.min_size and idle >= spares:
                self.fleet.retire(host)
                actions += self._rest(host, now)
        return actions

    def _checks(self, interval: float, now: float) -> list[Action]:
        actions: list[Action] = []
        for host in self.fleet.hosts:
            if not host.ready or host.retiring or now - host.checked < interval:
                continue
            host.checked = now
            indices = [0] if self.limits.shared else host.free
            actions.append(CheckHost(self._key, host.id, tuple((index, host.slots[index].epoch) for index in indices)))
        return actions
