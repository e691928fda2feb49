"""Who holds what and may yet claim what: grants only into states from which every holder can finish.

The rule is Dijkstra's banker's algorithm (EWD 623; Habermann, CACM 12(7), 1969) with two changes. Holders that
have and may claim the same are one class, so a check costs the square of the number of classes, a handful, and
not of the thousands of holders. And a grant is judged by what it changes: whoever could finish before must be
able to after it, and so must the one who gets it; so one holder whose claims were not named, or a pool that was
made smaller, doesn't stop everybody else.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agentfly.resources.core.types import Request
from agentfly.resources.core.waiting import Turn, Waiter

PATIENCE = 32
"""How often a waiter is overtaken before those who hold nothing yet have to queue behind it in all its pools."""

Bag = tuple[tuple[str, int], ...]
"""Pools and how many of each, sorted by pool."""


class HolderClass(NamedTuple):
    """What holders with the same prospects have in common.

    Attributes:
        held: what comes back when one of them ends.
        remaining: what one of them may yet claim.
    """

    held: Bag
    remaining: Bag


@dataclass(slots=True, eq=False)
class _Holder:
    """One rollout.

    Attributes:
        held: units of each pool that it would give back.
        covered: leases of each pool that it has; more than held where it shares another's unit.
        claims: leases of each pool that it may have at the same time.
        waiting: tickets and pools of its requests in queues.
        turn: of its latest request.
    """

    held: Counter[str] = field(default_factory=Counter)
    covered: Counter[str] = field(default_factory=Counter)
    claims: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, str] = field(default_factory=dict)
    turn: Turn = (0.0, 0)


class ClaimLedger:
    """Claims and holdings of every holder, over all pools."""

    def __init__(self) -> None:
        self._holders: dict[str, _Holder] = {}
        self._capacity: dict[str, int] = {}
        self._open: Counter[HolderClass] = Counter()  # of holders that have something and may claim more
        self._order = itertools.count()
        self._impatient: Waiter | None = None

    def set_capacity(self, pool: str, slots: int) -> None:
        """A pool can come to have so many slots."""
        self._capacity[pool] = slots

    def new_turn(self, request: Request) -> Turn:
        """The place of a request that arrives now."""
        return (request.priority, next(self._order))

    # What happens to holders

    def wants(self, request: Request, turn: Turn) -> Hashable:
        """A request has been queued; returns its lane."""
        if not request.holder:
            return None
        holder = self._holders.setdefault(request.holder, _Holder())
        before = self._class_of(holder)
        holder.waiting[request.ticket] = request.pool
        holder.turn = turn
        for pool, number in Counter(request.claims).items():
            holder.claims[pool] = max(holder.claims[pool], number)
        self._reclass(holder, before)
        return self.lane(request)

    def left(self, request: Request) -> None:
        """A request is no longer in its queue: granted, refused, or taken back."""
        if self._impatient is not None and self._impatient.request.ticket == request.ticket:
            self._impatient = None
        holder = self._holders.get(request.holder)
        if holder is not None:
            holder.waiting.pop(request.ticket, None)
            self._drop_if_done(request.holder, holder)

    def took(self, request: Request, *, unit: bool) -> None:
        """A lease begins.

        Args:
            unit: it takes a slot; false for one that shares a lease there is.
        """
        if not request.holder:
            return
        holder = self._holders.setdefault(request.holder, _Holder())
        before = self._class_of(holder)
        holder.covered[request.pool] += 1
        holder.held[request.pool] += unit
        for pool, number in Counter(request.claims).items():
            holder.claims[pool] = max(holder.claims[pool], number)
        self._reclass(holder, before)

    def gave(self, request: Request, *, unit: bool) -> None:
        """A lease ends; the counterpart of `took`."""
        holder = self._holders.get(request.holder)
        if holder is None:
            return
        before = self._class_of(holder)
        holder.covered[request.pool] -= 1
        holder.held[request.pool] -= unit
        self._reclass(holder, before)
        self._drop_if_done(request.holder, holder)

    def passed_on(self, giver: Request, heir: Request) -> None:
        """A shared lease lives on in the hands of another of its holders."""
        for request, change in ((giver, -1), (heir, 1)):
            if (holder := self._holders.get(request.holder)) is not None:
                before = self._class_of(holder)
                holder.held[request.pool] += change
                self._reclass(holder, before)

    # Questions

    def lane(self, request: Request) -> Hashable:
        """The same for requests of one pool that are all safe or all unsafe to grant."""
        holder = self._holders.get(request.holder)
        return None if holder is None else self._class_of(holder)

    def waiting(self, holder: str) -> Mapping[str, str]:
        """Tickets and pools of a holder's requests in queues."""
        known = self._holders.get(holder)
        return {} if known is None else known.waiting

    def may_grant(self, waiter: Waiter) -> bool:
        """Whether the request can be granted without a risk of deadlock, and without starving another."""
        request = waiter.request
        holder = self._holders.get(request.holder)
        if self._must_let_pass(waiter, holder):
            return False
        if holder is None:
            return True
        old = self._class_of(holder)
        new = HolderClass(_plus(old.held, request.pool), _minus(old.remaining, request.pool))
        if not new.remaining:
            return True  # it can finish with what it has then
        after = self._open.copy()
        if old in after:
            after[old] -= 1
        after[new] += 1
        work = self._work(after)
        if _fits(new.remaining, work):
            return True  # all that it may yet want is there
        finishing = self._finishing(after, work)
        if new not in finishing:
            return False
        before = self._finishing(self._open, self._work(self._open))
        return all(known in finishing for known in before if after[known])

    def overtook(self, waiter: Waiter) -> None:
        """Somebody behind the waiter was served; when that goes on, newcomers have to stand back."""
        waiter.overtaken += 1
        if waiter.overtaken >= PATIENCE and self._impatient is None:
            self._impatient = waiter

    def deadlocked(self) -> list[str]:
        """Holders to give way, so that the others who wait for each other can go on; the youngest are chosen.

        Only claims that weren't named, and pools that have shrunk, can bring this about.
        """
        stuck = {
            name: holder for name, holder in self._holders.items() if holder.waiting and any(holder.held.values())
        }
        work = dict(self._capacity)
        for holder in stuck.values():
            for pool, number in holder.held.items():
                work[pool] -= number
        victims: list[str] = []
        while stuck:
            able = [
                name for name, holder in stuck.items() if _fits(Counter(holder.waiting.values()).items(), work)
            ]
            if not able:
                able = [max(stuck, key=lambda name: stuck[name].turn)]
                victims += able
            for name in able:
                for pool, number in stuck.pop(name).held.items():
                    work[pool] += number
        return victims

    # Inside

    def _must_let_pass(self, waiter: Waiter, holder: _Holder | None) -> bool:
        first = self._impatient
        if first is None or waiter.turn <= first.turn or (holder is not None and any(holder.held.values())):
            return False
        request = first.request
        return waiter.request.pool == request.pool or waiter.request.pool in request.claims

    def _class_of(self, holder: _Holder) -> HolderClass:
        remaining = holder.claims - holder.covered
        return HolderClass(_bag(holder.held), tuple(sorted(self._possible(remaining))))

    def _possible(self, claims: Mapping[str, int]) -> Iterable[tuple[str, int]]:
        """Claims on pools that there are, and no more than they could ever give."""
        for pool, number in claims.items():
            if pool in self._capacity:
                yield pool, number

    def _reclass(self, holder: _Holder, before: HolderClass) -> None:
        after = self._class_of(holder)
        if after == before:
            return
        if before.held and before.remaining:
            self._open[before] -= 1
            if not self._open[before]:
                del self._open[before]
        if after.held and after.remaining:
            self._open[after] += 1

    def _drop_if_done(self, name: str, holder: _Holder) -> None:
        if not holder.waiting and not any(holder.covered.values()):
            del self._holders[name]

    def _work(self, classes: Mapping[HolderClass, int]) -> dict[str, int]:
        """Slots that are free or will be without anything further being granted."""
        work = dict(self._capacity)
        for known, number in classes.items():
            for pool, units in known.held:
                work[pool] -= units * number
        return work

    @staticmethod
    def _finishing(classes: Mapping[HolderClass, int], work: dict[str, int]) -> set[HolderClass]:
        """Classes all of whose holders can finish, one after the other. Uses up `work`."""
        left = [known for known, number in classes.items() if number]
        finishing: set[HolderClass] = set()
        while able := [known for known in left if _fits(known.remaining, work)]:
            for known in able:
                for pool, units in known.held:
                    work[pool] += units * classes[known]
            finishing.update(able)
            left = [known for known in left if known not in finishing]
        return finishing


def _bag(counter: Counter[str]) -> Bag:
    return tuple(sorted((pool, number) for pool, number in counter.items() if number > 0))


def _plus(bag: Bag, pool: str) -> Bag:
    counter = Counter(dict(bag))
    counter[pool] += 1
    return _bag(counter)


def _minus(bag: Bag, pool: str) -> Bag:
    counter = Counter(dict(bag))
    counter[pool] -= 1
    return _bag(counter)


def _fits(wanted: Iterable[tuple[str, int]], work: Mapping[str, int]) -> bool:
    return all(work.get(pool, 0) >= number for pool, number in wanted)
