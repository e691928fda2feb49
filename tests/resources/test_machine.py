"""The scheduling core under random interleavings of everything that can happen."""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from resources.world import TTL, World

from agentfly.resources.core.types import PoolLimits

CLIENTS = ("a", "b", "c")
POOLS = {
    "box": PoolLimits("box", slots=2, max_size=4, idle_ttl=20.0, max_uses=3, spares=1, health_interval=10.0),
    "desk": PoolLimits(
        "desk", slots=1, resets=False, min_size=1, max_size=3, max_age=30.0, max_waiting=3, spares="auto", idle_ttl=15.0
    ),
    "engine": PoolLimits("engine", slots=3, shared=True, max_size=6, idle_ttl=40.0, max_age=60.0, start_retries=1),
}
T = TypeVar("T")
indices = st.integers(0, 1000)
pools = st.sampled_from(sorted(POOLS))
clients = st.sampled_from(CLIENTS)


class CoreMachine(RuleBasedStateMachine):
    """Every rule is an event; the world checks the promises after each."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(dict(POOLS))
        self.given_back: list[tuple[str, str]] = []

    @rule(client=clients, pool=pools, priority=st.integers(0, 2))
    def acquire(self, client: str, pool: str, priority: int) -> None:
        self.world.acquire(client, pool, priority=priority)

    @rule(client=clients, pool=pools, share=st.sampled_from(["x", "y"]))
    def acquire_shared(self, client: str, pool: str, share: str) -> None:
        self.world.acquire(client, pool, share=share)

    @rule(client=clients, pool=pools, rollout=st.integers(0, 3), claims=st.sets(pools))
    def acquire_with_claims(self, client: str, pool: str, rollout: int, claims: set[str]) -> None:
        self.world.acquire(client, pool, holder=f"{client}{rollout}", claims=tuple(sorted(claims | {pool})))

    @precondition(lambda self: self._tickets())
    @rule(index=indices)
    def ask_again(self, index: int) -> None:
        client, ticket = self._pick(self._tickets(), index)
        self.world.repeat(client, ticket)

    @precondition(lambda self: self._tickets())
    @rule(index=indices)
    def release_or_cancel(self, index: int) -> None:
        client, ticket = self._pick(self._tickets(), index)
        self.given_back.append((client, ticket))
        self.world.release(client, ticket)

    @precondition(lambda self: self.given_back)
    @rule(index=indices)
    def release_again(self, index: int) -> None:
        self.world.release(*self._pick(self.given_back, index))

    @precondition(lambda self: self.world.clients)
    @rule(index=indices)
    def client_dies(self, index: int) -> None:
        self.world.kill_client(self._pick(sorted(self.world.clients), index))

    @precondition(lambda self: self._starting())
    @rule(index=indices)
    def host_starts(self, index: int) -> None:
        self.world.start(self._pick(self._starting(), index))

    @precondition(lambda self: self._starting())
    @rule(index=indices)
    def host_fails(self, index: int) -> None:
        self.world.fail(self._pick(self._starting(), index))

    @precondition(lambda self: self._ready())
    @rule(index=indices)
    def host_dies(self, index: int) -> None:
        self.world.kill_host(self._pick(self._ready(), index))

    @precondition(lambda self: self.world.resets)
    @rule(index=indices, ok=st.booleans())
    def reset_ends(self, index: int, ok: bool) -> None:
        self.world.reset(index % len(self.world.resets), ok=ok)

    @precondition(lambda self: self.world.checks)
    @rule(index=indices)
    def check_fails(self, index: int) -> None:
        check = self.world.checks.pop(index % len(self.world.checks))
        for slot, epoch in check.slots[:1]:
            self.world.fail_check(check, slot, epoch)

    @rule(seconds=st.sampled_from([0.5, 5.0, TTL, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(pool=pools, low=st.integers(0, 2), more=st.integers(0, 6))
    def pool_is_resized(self, pool: str, low: int, more: int) -> None:
        self.world.resize(pool, low, low + more)

    @rule(late=st.sets(clients, max_size=1))
    def manager_restarts(self, late: set[str]) -> None:
        self.world.restart_manager(late=late & self.world.clients.keys())

    def teardown(self) -> None:
        """Everything ends: whoever waits is answered, and every slot comes back."""
        world = self.world
        for pool, limits in POOLS.items():
            world.resize(pool, limits.min_size, limits.max_size)
        world.settle()
        world.advance(200.0)
        world.settle()
        for stats in world.core.stats():
            assert stats.leased == stats.waiting == 0
            assert stats.idle + stats.starting + stats.resetting == stats.size

    def _tickets(self) -> list[tuple[str, str]]:
        return [
            (name, ticket) for name, known in self.world.clients.items() for ticket in [*known.waiting, *known.held]
        ]

    def _starting(self) -> list[str]:
        return [host_id for host_id, host in self.world.hosts.items() if not host.ready]

    def _ready(self) -> list[str]:
        return [host_id for host_id, host in self.world.hosts.items() if host.ready]

    @staticmethod
    def _pick(items: list[T], index: int) -> T:
        return items[index % len(items)]


CoreMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
TestCore = CoreMachine.TestCase


class LongMachine(CoreMachine):
    """The same for longer."""


LongMachine.TestCase.settings = settings(TestCore.settings, max_examples=300, stateful_step_count=200)
TestCoreForLonger = pytest.mark.slow(LongMachine.TestCase)
