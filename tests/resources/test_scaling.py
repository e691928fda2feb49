"""What an event costs doesn't depend on how many wait. Counted in function calls: the same on every machine."""

from __future__ import annotations

import sys
from collections import deque
from types import FrameType

import pytest

from agentfly.resources.core.scheduler import Scheduler
from agentfly.resources.core.types import Action, Grant, PoolLimits, Request, ResetSlot, StartHost


class Load:
    """Keeps a number of requests waiting on 64 slots and passes leases on."""

    def __init__(self, waiters: int, claims: tuple[str, ...]) -> None:
        self.core = Scheduler(1e9)
        self.claims = claims
        self.held: deque[str] = deque()
        self.number = 0
        for pool in ("p", "q"):
            limits = PoolLimits(pool, slots=16, min_size=64, max_size=64)
            self.do(self.core.add_pool(pool, limits, 0.0))
        for _ in range(64 + waiters):
            self.acquire()

    def acquire(self) -> None:
        self.number += 1
        request = Request(f"t{self.number}", "c", "p", float(self.number), f"h{self.number}", self.claims)
        self.do(self.core.acquire(request, 0.0))

    def lease(self) -> None:
        """One lease ends, another request comes."""
        self.do(self.core.release("c", self.held.popleft(), 0.0))
        self.acquire()

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Grant(lease=lease):
                    self.held.append(lease.ticket)
                case ResetSlot(pool=pool, host=host, slot=slot):
                    self.do(self.core.slot_reset(pool, host, slot, True, "", 0.0))
                case StartHost(pool=pool, host=host):
                    self.do(self.core.host_ready(pool, host, 0.0))


def calls_per_lease(waiters: int, claims: tuple[str, ...], leases: int = 300) -> float:
    load = Load(waiters, claims)
    count = 0

    def counted(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        for _ in range(leases):
            load.lease()
    finally:
        sys.setprofile(None)
    return count / leases


@pytest.mark.parametrize("claims", [(), ("p", "q")])
def test_an_event_costs_the_same_with_ten_thousand_waiters(claims: tuple[str, ...]) -> None:
    assert calls_per_lease(10_000, claims) <= 1.1 * calls_per_lease(100, claims)


def test_waiters_that_are_passed_over_cost_one_look() -> None:
    """Thousands that can't be served safely don't make the others' events slower."""

    def blocked(waiters: int) -> float:
        load = Load(0, ())
        core = load.core
        for number in range(64):  # hold all of q, and may want p
            core.acquire(Request(f"q{number}", "c", "q", 0.0, f"a{number}", ("q", "p")), 0.0)
        for number in range(waiters):  # want p, may want q: not safe while those above are there
            core.acquire(Request(f"b{number}", "c", "p", 1.0, f"b{number}", ("q", "p")), 0.0)
        count = 0

        def counted(frame: FrameType, event: str, _: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(counted)
        for _ in range(100):
            load.lease()
        sys.setprofile(None)
        return count / 100

    assert blocked(5000) <= 1.5 * blocked(50)
