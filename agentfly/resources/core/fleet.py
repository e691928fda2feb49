"""The hosts of a pool and the states of their slots, counted as they change."""

from __future__ import annotations

from collections.abc import ItemsView, ValuesView

from agentfly.resources.core.hosts import Host, Slot, SlotState

_BUSY = frozenset((SlotState.LEASED, SlotState.RESETTING))


class Fleet:
    """Hosts, indexed so that every question a lease asks is answered in constant time.

    Args:
        pack: lend slots of the fullest host first, so that others run empty and can be given back; else of
            the emptiest, so that load is even.

    Attributes:
        live_size: slots of the hosts that don't retire.
        rooms: not 0 while a slot can be lent; bit n says that some host has n free ones.
    """

    def __init__(self, *, pack: bool) -> None:
        self._pack = pack
        self._hosts: dict[str, Host] = {}
        self._counts = dict.fromkeys(SlotState, 0)
        self._live = dict.fromkeys(SlotState, 0)  # the same, without hosts that retire
        self._retiring_busy = 0
        # Live hosts by their number of free slots, the longest there first.
        self._by_room: dict[int, dict[str, Host]] = {}
        self.rooms = 0
        self.live_size = 0

    def __len__(self) -> int:
        return len(self._hosts)

    def __contains__(self, host: Host) -> bool:
        return self._hosts.get(host.id) is host

    def get(self, host_id: str) -> Host | None:
        """A host by its id."""
        return self._hosts.get(host_id)

    @property
    def hosts(self) -> ValuesView[Host]:
        """All hosts, the oldest first."""
        return self._hosts.values()

    @property
    def counts(self) -> ItemsView[SlotState, int]:
        """Slots in each state."""
        return self._counts.items()

    def count(self, *states: SlotState) -> int:
        """Slots in any of the states, over all hosts."""
        return sum(self._counts[state] for state in states)

    @property
    def leased(self) -> int:
        """Slots that are lent."""
        return self._counts[SlotState.LEASED]

    @property
    def idle(self) -> int:
        """Idle slots of the hosts that don't retire."""
        return self._live[SlotState.IDLE]

    @property
    def available(self) -> int:
        """Slots that are idle or will be without a lease ending, in hosts that don't retire."""
        live = self._live
        return live[SlotState.IDLE] + live[SlotState.RESETTING] + live[SlotState.STARTING]

    @property
    def size(self) -> int:
        """Slots that are in use or can be: all of the live hosts, the busy ones of those that retire."""
        return self.live_size + self._retiring_busy

    def add(self, host: Host) -> None:
        """A host joins with all its slots in their present state, none of them idle."""
        self._hosts[host.id] = host
        self.live_size += len(host.slots)
        for slot in host.slots:
            self._count(host, slot.state, 1)

    def remove(self, host: Host) -> None:
        """A host is no more."""
        self._leave_rooms(host)
        for slot in host.slots:
            self._count(host, slot.state, -1)
        if host.retiring:
            self._retiring_busy -= host.busy
        else:
            self.live_size -= len(host.slots)
        del self._hosts[host.id]

    def retire(self, host: Host) -> None:
        """A host gets no more leases."""
        if host.retiring:
            return
        self._leave_rooms(host)
        host.retiring = True
        self.live_size -= len(host.slots)
        self._retiring_busy += host.busy
        for slot in host.slots:
            self._live[slot.state] -= 1

    def move(self, host: Host, index: int, state: SlotState) -> None:
        """A slot changes its state; not from idle to leased, that is `take`."""
        slot = host.slots[index]
        if slot.state is SlotState.IDLE:
            host.free.remove(index)
            self._rehouse(host, len(host.free) + 1)
        elif state is SlotState.IDLE:
            host.free.append(index)
            self._rehouse(host, len(host.free) - 1)
        self._change(host, slot, state)

    def take(self) -> tuple[Host, int]:
        """Lend a slot; only while there is room."""
        room = (self.rooms & -self.rooms if self._pack else self.rooms).bit_length() - 1
        host = next(iter(self._by_room[room].values()))
        index = host.free.pop()
        self._rehouse(host, room)
        self._change(host, host.slots[index], SlotState.LEASED)
        return host, index

    def _change(self, host: Host, slot: Slot, state: SlotState) -> None:
        busier = (state in _BUSY) - (slot.state in _BUSY)
        host.busy += busier
        self._counts[slot.state] -= 1
        self._counts[state] += 1
        if host.retiring:
            self._retiring_busy += busier
        else:
            self._live[slot.state] -= 1
            self._live[state] += 1
        slot.state = state

    def _count(self, host: Host, state: SlotState, by: int) -> None:
        self._counts[state] += by
        if not host.retiring:
            self._live[state] += by

    def _leave_rooms(self, host: Host) -> None:
        if not host.retiring:
            self._leave_room(host, len(host.free))

    def _rehouse(self, host: Host, before: int) -> None:
        """The number of a host's free slots has changed."""
        if host.retiring:
            return
        self._leave_room(host, before)
        room = len(host.free)
        if room:
            hosts = self._by_room.get(room)
            if hosts is None:
                hosts = self._by_room[room] = {}
            hosts[host.id] = host
            self.rooms |= 1 << room

    def _leave_room(self, host: Host, room: int) -> None:
        if room:
            hosts = self._by_room[room]
            del hosts[host.id]
            if not hosts:
                self.rooms &= ~(1 << room)
