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
    """

    def __init__(self, *, pack: bool) -> None:
        self._pack = pack
        self._hosts: dict[str, Host] = {}
        self._counts = dict.fromkeys(SlotState, 0)
        self._live = dict.fromkeys(SlotState, 0)  # the same, without hosts that retire
        # Live hosts by their number of free slots, the longest there first; the bits of the mask say which
        # numbers have any.
        self._by_room: dict[int, dict[str, Host]] = {}
        self._mask = 0

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

    def count_live(self, *states: SlotState) -> int:
        """The same over the hosts that don't retire."""
        return sum(self._live[state] for state in states)

    @property
    def size(self) -> int:
        """Slots that are in use or can be: all of the live hosts, the busy ones of those that retire."""
        live = sum(self._live.values())
        return live + sum(self._counts[state] - self._live[state] for state in _BUSY)

    @property
    def live_size(self) -> int:
        """Slots of the live hosts."""
        return sum(self._live.values())

    @property
    def has_room(self) -> bool:
        """Whether a slot can be lent now."""
        return self._mask != 0

    def add(self, host: Host) -> None:
        """A host joins with all its slots in their present state, none of them idle."""
        self._hosts[host.id] = host
        for slot in host.slots:
            self._count(host, slot.state, 1)

    def remove(self, host: Host) -> None:
        """A host is no more."""
        self._leave_rooms(host)
        for slot in host.slots:
            self._count(host, slot.state, -1)
        del self._hosts[host.id]

    def retire(self, host: Host) -> None:
        """A host gets no more leases."""
        if host.retiring:
            return
        self._leave_rooms(host)
        host.retiring = True
        for slot in host.slots:
            self._live[slot.state] -= 1

    def move(self, host: Host, index: int, state: SlotState) -> None:
        """A slot changes its state; not from idle to leased, that is `take`."""
        slot = host.slots[index]
        if slot.state is SlotState.IDLE:
            self._leave_rooms(host)
            host.free.remove(index)
        elif state is SlotState.IDLE:
            self._leave_rooms(host)
            host.free.append(index)
        else:
            self._change(host, slot, state)
            return
        self._change(host, slot, state)
        self._enter_rooms(host)

    def take(self) -> tuple[Host, int]:
        """Lend a slot; only while there is room."""
        room = (self._mask & -self._mask if self._pack else self._mask).bit_length() - 1
        host = next(iter(self._by_room[room].values()))
        self._leave_rooms(host)
        index = host.free.pop()
        self._change(host, host.slots[index], SlotState.LEASED)
        self._enter_rooms(host)
        return host, index

    def _change(self, host: Host, slot: Slot, state: SlotState) -> None:
        self._count(host, slot.state, -1)
        slot.state = state
        self._count(host, state, 1)

    def _count(self, host: Host, state: SlotState, by: int) -> None:
        self._counts[state] += by
        if not host.retiring:
            self._live[state] += by
        if state in _BUSY:
            host.busy += by

    def _leave_rooms(self, host: Host) -> None:
        room = len(host.free)
        if room == 0 or host.retiring:
            return
        hosts = self._by_room[room]
        del hosts[host.id]
        if not hosts:
            self._mask &= ~(1 << room)

    def _enter_rooms(self, host: Host) -> None:
        room = len(host.free)
        if room == 0 or host.retiring:
            return
        self._by_room.setdefault(room, {})[host.id] = host
        self._mask |= 1 << room
