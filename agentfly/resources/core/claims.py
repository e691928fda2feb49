"""Who holds what and may yet claim what: grants only into states from which every holder can finish.

The rule is Dijkstra's banker's algorithm (EWD 623; Habermann, CACM 12(7), 1969) with two changes. Holders that
have and may claim the same are one class, so a check costs the square of the number of classes, a handful, and
not of the thousands of holders. And a grant is judged by what it changes: whoever could finish before must be
able to after it, and so must the one who gets it; so one holder whose claims were not named, or a pool that was
made smaller, doesn't stop everybody else.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from agentfly.resources.core.types import Request
from agentfly.resources.core.waiting import Turn, Waiter

_K = TypeVar("_K")
PATIENCE = 32
"""How often a waiter is overtaken before those who hold nothing yet have to queue behind it in all its pools."""

Bag: TypeAlias = tuple[tuple[str, int], ...]
"""Pools and how many of each, sorted by pool."""


class HolderClass(NamedTuple):
    """What holders with the same prospects have in common.

    Attributes:
        held: what comes back when one of them ends.
        remaining: what one of them may yet claim.
    """

    held: Bag
    remaining: Bag


_NOTHING = HolderClass((), ())


@dataclass(slots=True, eq=False)
class _Holder:
    """One rollout. All counts are positive; what is zero isn't there.

    Attributes:
        held: units of each pool that it would give back.
        covered: leases of each pool that it has; more than held where it shares another's unit.
        claims: leases of each pool that it may have at the same time.
        waiting: tickets and pools of its requests in queues.
        turn: of its latest request.
        simple: it never claimed more than one lease, so that it can't wait for another while it has one.
        kind: its class; of a simple one always the same.
    """

    held: dict[str, int] = field(default_factory=dict)
    covered: dict[str, int] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    turn: Turn = (0.0, 0)
    simple: bool = True
    kind: HolderClass = _NOTHING


class ClaimLedger:
    """Claims and holdings of every holder, over all pools.

    Attributes:
        blocked: pools in which somebody is passed over although a slot is free; any event may change that.
    """

    def __init__(self) -> None:
        self.blocked: set[str] = set()
        self._holders: dict[str, _Holder] = {}
        self._capacity: dict[str, int] = {}
        self._open: dict[HolderClass, int] = {}  # of holders that have something and may claim more
        self._order = itertools.count()
        self._impatient: Waiter | None = None
        self._relaned: defaultdict[str, set[str]] = defaultdict(set)

    def set_capacity(self, pool: str, slots: int) -> None:
        """A pool can come to have so many slots."""
        self._capacity[pool] = slots
        for holder in self._holders.values():
            self._reclass(holder)

    def new_turn(self, request: Request) -> Turn:
        """The place of a request that arrives now."""
        return (request.priority, next(self._order))

    # What happens to holders

    def wants(self, request: Request, turn: Turn) -> Hashable:
        """A request has been queued; returns its lane."""
        if not request.holder:
            return None
        holder = self._known(request)
        holder.turn = turn
        # To ask is to claim, named before or not.
        asked = 1 + holder.covered.get(request.pool, 0)
        if holder.waiting:
            asked += list(holder.waiting.values()).count(request.pool)
        if asked > holder.claims.get(request.pool, 0):
            self._claim(holder, request.pool, asked)
        if not holder.simple:
            self._reclass(holder)
        holder.waiting[request.ticket] = request.pool
        return None if holder.simple else holder.kind

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
        holder = self._known(request)
        holder.covered[request.pool] = holder.covered.get(request.pool, 0) + 1
        if unit:
            holder.held[request.pool] = holder.held.get(request.pool, 0) + 1
        if not holder.simple:
            self._reclass(holder)

    def gave(self, request: Request, *, unit: bool) -> None:
        """A lease ends; the counterpart of `took`."""
        holder = self._holders.get(request.holder)
        if holder is None:
            return
        _add(holder.covered, request.pool, -1)
        if unit:
            _add(holder.held, request.pool, -1)
        if not holder.simple:
            self._reclass(holder)
        self._drop_if_done(request.holder, holder)

    def passed_on(self, giver: Request, heir: Request) -> None:
        """A shared lease lives on in the hands of another of its holders."""
        for request, change in ((giver, -1), (heir, 1)):
            if (holder := self._holders.get(request.holder)) is not None:
                _add(holder.held, request.pool, change)
                self._reclass(holder)

    def overtook(self, waiter: Waiter) -> None:
        """Somebody behind the waiter was served; when that goes on, newcomers have to stand back."""
        waiter.overtaken += 1
        if waiter.overtaken >= PATIENCE and self._impatient is None:
            self._impatient = waiter

    # Questions

    def lane(self, request: Request) -> Hashable:
        """The same for requests of one pool that are all safe or all unsafe to grant."""
        holder = self._holders.get(request.holder)
        return None if holder is None or holder.simple else holder.kind

    def relaned(self, pool: str) -> Iterable[str]:
        """Tickets of a pool's queue whose lane may have changed since the last call."""
        return self._relaned.pop(pool, ()) if self._relaned else ()

    def waiting(self, holder: str) -> Mapping[str, str]:
        """Tickets and pools of a holder's requests in queues."""
        known = self._holders.get(holder)
        return {} if known is None else known.waiting

    def may_grant(self, waiter: Waiter) -> bool:
        """Whether the request can be granted without a risk of deadlock, and without starving another."""
        request = waiter.request
        holder = self._holders.get(request.holder)
        if self._impatient is not None and self._must_stand_back(waiter, holder):
            return False
        if holder is None or holder.simple:
            return True
        old = holder.kind
        new = HolderClass(_change(old.held, request.pool, 1), _change(old.remaining, request.pool, -1))
        if not new.remaining:
            return True  # it can finish with what it has then
        after = dict(self._open)
        if old in after:
            after[old] -= 1
        after[new] = after.get(new, 0) + 1
        work = self._work(after)
        if _fits(new.remaining, work):
            return True  # all that it may yet want is there
        finishing = self._finishing(after, work)
        if new not in finishing:
            return False
        before = self._finishing(self._open, self._work(self._open))
        return all(known in finishing for known in before if after.get(known))

    def deadlocked(self) -> list[str]:
        """Holders to give way, so that the others who wait for each other can go on; the youngest are chosen.

        Only claims that weren't named, and pools that have shrunk, can bring this about. Who doesn't wait now is
        expected to end; who does, to want all that it may yet claim, for it isn't served before that is safe.
        """
        stuck = {name: holder for name, holder in self._holders.items() if holder.waiting and holder.held}
        work = dict(self._capacity)
        for holder in stuck.values():
            for pool, number in holder.held.items():
                work[pool] -= number
        victims: list[str] = []
        while stuck:
            able = [name for name, holder in stuck.items() if _fits(holder.kind.remaining, work)]
            if not able:
                missing = {pool for holder in stuck.values() for pool, n in holder.kind.remaining if work[pool] < n}
                useful = [name for name, holder in stuck.items() if not missing.isdisjoint(holder.held)]
                if not useful:
                    break  # they wait for pools that have no slots at all
                able = [max(useful, key=lambda name: stuck[name].turn)]
                victims += able
            for name in able:
                for pool, number in stuck.pop(name).held.items():
                    work[pool] += number
        return victims

    # Inside

    def _known(self, request: Request) -> _Holder:
        """The holder of a request, with the claims that it names on pools that there are."""
        holder = self._holders.get(request.holder)
        if holder is None:
            holder = self._holders[request.holder] = _Holder()
        for pool in request.claims:
            if pool in self._capacity:
                self._claim(holder, pool, request.claims.count(pool))
        return holder

    @staticmethod
    def _claim(holder: _Holder, pool: str, number: int) -> None:
        if number > holder.claims.get(pool, 0):
            holder.claims[pool] = number
            holder.simple = number == len(holder.claims) == 1

    def _must_stand_back(self, waiter: Waiter, holder: _Holder | None) -> bool:
        first = self._impatient
        if first is None or waiter.turn <= first.turn or (holder is not None and holder.held):
            return False
        known = self._holders.get(first.request.holder)
        claims = known.claims if known is not None else {first.request.pool: 1}
        # One that waits for a pool to have slots at all doesn't hold the others up.
        return waiter.request.pool in claims and all(self._capacity[pool] for pool in claims)

    def _reclass(self, holder: _Holder) -> None:
        if holder.simple:
            return
        remaining = []
        for pool, claimed in holder.claims.items():
            # To claim more than there can be is to claim all.
            left = min(claimed, self._capacity[pool] or 1) - holder.covered.get(pool, 0)
            if left > 0:
                remaining.append((pool, left))
        before, after = holder.kind, HolderClass(tuple(sorted(holder.held.items())), tuple(sorted(remaining)))
        if after == before:
            return
        holder.kind = after
        if before.held and before.remaining:
            _add(self._open, before, -1)
        if after.held and after.remaining:
            _add(self._open, after, 1)
        for ticket, pool in holder.waiting.items():
            self._relaned[pool].add(ticket)

    def _drop_if_done(self, name: str, holder: _Holder) -> None:
        if not holder.waiting and not holder.covered:
            del self._holders[name]

    def _work(self, classes: Mapping[HolderClass, int]) -> dict[str, int]:
        """Slots that are free, or will be without anything further being granted."""
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


def _add(counts: dict[_K, int], key: _K, change: int) -> None:
    number = counts.get(key, 0) + change
    if number:
        counts[key] = number
    else:
        del counts[key]


def _change(bag: Bag, pool: str, change: int) -> Bag:
    counts = dict(bag)
    counts[pool] = counts.get(pool, 0) + change
    return tuple(sorted((name, number) for name, number in counts.items() if number > 0))


def _fits(wanted: Iterable[tuple[str, int]], work: Mapping[str, int]) -> bool:
    return all(work.get(pool, 0) >= number for pool, number in wanted)
