"""No deadlock: holders of several types in any order all finish, and are not kept waiting without need."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resources.world import World

from agentfly.resources.core.claims import PATIENCE
from agentfly.resources.core.types import PoolLimits

NAMES = ("p", "q", "r", "s")


@dataclass
class Rollout:
    """Acquires its plan in order, one after the other, then gives all back."""

    name: str
    plan: list[str]
    named: bool
    tickets: list[str] = field(default_factory=list)
    attempts: int = 1

    def step(self, world: World, client: str) -> bool:
        """Do the next thing if nothing is in its way; returns whether it has finished."""
        known = world.clients[client]
        if any(ticket in known.waiting for ticket in self.tickets):
            return False
        if any(ticket not in known.held for ticket in self.tickets):  # it was told to give way
            self.give_back(world, client)
            self.attempts += 1
            return False
        if len(self.tickets) == len(self.plan):
            self.give_back(world, client)
            return True
        claims = tuple(self.plan) if self.named else ()
        pool, age = self.plan[len(self.tickets)], float(self.name[1:])
        self.tickets.append(world.acquire(client, pool, priority=age, holder=self.name, claims=claims))
        return False

    def give_back(self, world: World, client: str) -> None:
        for ticket in self.tickets:
            world.release(client, ticket)
        self.tickets.clear()


def make_world(sizes: dict[str, int]) -> World:
    world = World(
        {name: PoolLimits(name, shared=True, slots=size, max_size=size) for name, size in sizes.items()}, checked=False
    )
    world.client("c")
    return world


def play(world: World, rollouts: list[Rollout], rng: random.Random, most_at_once: int) -> None:
    """Run all, in a random interleaving, until none is left."""
    waiting, running = list(rollouts), []
    for _ in range(5_000):
        while waiting and len(running) < most_at_once:
            running.append(waiting.pop(0))
        if not running:
            return
        for host_id in [host_id for host_id, host in world.hosts.items() if not host.ready]:
            world.start(host_id)
        rollout = rng.choice(running)
        if rollout.step(world, "c"):
            running.remove(rollout)
        if rng.random() < 0.1:
            world.advance(1.0)
    raise AssertionError(f"stuck: {running}")


plans = st.lists(
    st.permutations(NAMES).map(list).flatmap(lambda names: st.integers(1, 4).map(lambda n: names[:n])), max_size=12
)
sizes = st.fixed_dictionaries({name: st.integers(1, 3) for name in NAMES})


@given(plans=plans, sizes=sizes, seed=st.integers(0, 1 << 30), most=st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_with_named_claims_everybody_finishes_at_the_first_try(
    plans: list[list[str]], sizes: dict[str, int], seed: int, most: int
) -> None:
    world = make_world(sizes)
    rollouts = [Rollout(f"r{index}", plan, named=True) for index, plan in enumerate(plans)]
    play(world, rollouts, random.Random(seed), most)
    assert not world.rejects
    assert all(rollout.attempts == 1 for rollout in rollouts)


@given(plans=plans, sizes=sizes, seed=st.integers(0, 1 << 30), named=st.lists(st.booleans(), min_size=1))
@settings(max_examples=100, deadline=None)
def test_without_named_claims_victims_start_over_and_everybody_finishes(
    plans: list[list[str]], sizes: dict[str, int], seed: int, named: list[bool]
) -> None:
    world = make_world(sizes)
    rollouts = [Rollout(f"r{i}", plan, named=named[i % len(named)]) for i, plan in enumerate(plans)]
    play(world, rollouts, random.Random(seed), 8)
    assert {reject.error for reject in world.rejects} <= {"deadlock"}


def test_opposite_orders_on_pools_of_one() -> None:
    world = make_world({"p": 1, "q": 1})
    for host_id in list(world.hosts):
        world.start(host_id)
    first = world.acquire("c", "p", holder="one", claims=("p", "q"))
    start_all(world)
    second = world.acquire("c", "q", holder="two", claims=("q", "p"))
    start_all(world)
    known = world.clients["c"]
    assert first in known.held
    assert second in known.waiting, "granting it could end in a deadlock"
    rest = world.acquire("c", "q", holder="one", claims=("p", "q"))
    assert rest in known.held
    world.release("c", first)
    assert second in known.waiting
    world.release("c", rest)
    assert second in known.held


def test_an_event_in_one_pool_lets_those_go_on_who_wait_in_another() -> None:
    world = make_world({"p": 1, "q": 1})
    start_all(world)
    first = world.acquire("c", "p", holder="one", claims=("p", "q"))
    start_all(world)
    second = world.acquire("c", "q", holder="two", claims=("q", "p"))
    start_all(world)
    assert second in world.clients["c"].waiting
    world.release("c", first)
    assert second in world.clients["c"].held


def test_who_can_not_finish_takes_nothing_from_those_who_can() -> None:
    world = make_world({"p": 1, "q": 1})
    start_all(world)
    world.resize("q", 0, 0)
    both = world.acquire("c", "p", holder="both", claims=("p", "q"))
    single = world.acquire("c", "p", holder="single", claims=("p",))
    start_all(world)
    assert both in world.clients["c"].waiting, "q is drained"
    assert single in world.clients["c"].held
    world.release("c", single)
    world.resize("q", 0, 1)
    start_all(world)
    assert both in world.clients["c"].held


def test_claims_on_a_pool_that_shrinks_shrink_with_it() -> None:
    world = make_world({"p": 3})
    tickets = [world.acquire("c", "p", holder="greedy") for _ in range(3)]
    for host_id in list(world.hosts):
        world.fail(host_id)
    world.resize("p", 0, 2)
    world.advance(1.0)
    start_all(world)
    assert world.clients["c"].held.keys() == set(tickets[:2])


def test_the_heir_of_a_shared_lease_counts_as_its_holder() -> None:
    world = make_world({"p": 1, "q": 1})
    start_all(world)
    owner = world.acquire("c", "p", holder="owner", claims=("p", "q"), share="g")
    heir = world.acquire("c", "p", holder="heir", claims=("p", "q"), share="g")
    start_all(world)
    world.release("c", owner)
    other = world.acquire("c", "q", holder="other", claims=("q", "p"))
    start_all(world)
    assert other in world.clients["c"].waiting, "the heir has p and may want q"
    world.release("c", heir)
    assert other in world.clients["c"].held


def test_a_holder_of_one_type_is_never_held_up() -> None:
    world = make_world({"p": 1, "q": 2})
    start_all(world)
    world.acquire("c", "p", holder="one", claims=("p", "q"))
    start_all(world)
    single = world.acquire("c", "q", holder="two", claims=("q",))
    start_all(world)
    assert single in world.clients["c"].held


def test_unnamed_claims_in_a_circle_pick_the_youngest() -> None:
    world = make_world({"p": 1, "q": 1})
    old = world.acquire("c", "p", holder="old", priority=1)
    start_all(world)
    young = world.acquire("c", "q", holder="young", priority=2)
    start_all(world)
    old_wants = world.acquire("c", "q", holder="old", priority=1)
    young_wants = world.acquire("c", "p", holder="young", priority=2)
    world.advance(2.0)
    assert [(reject.ticket, reject.error) for reject in world.rejects] == [(young_wants, "deadlock")]
    assert "young" in world.rejects[0].message
    world.release("c", young)
    assert {old, old_wants} <= world.clients["c"].held.keys()


def test_waiting_without_a_circle_is_no_deadlock() -> None:
    world = make_world({"p": 1, "q": 1})
    world.acquire("c", "p", holder="one")
    start_all(world)
    world.acquire("c", "q", holder="two")
    start_all(world)
    world.acquire("c", "q", holder="one")  # waits for `two`, who works
    world.advance(60.0)
    assert not world.rejects


def test_nobody_is_overtaken_for_ever() -> None:
    """`big` may claim both and is passed over for those who want one; in the end newcomers stand back."""
    world = make_world({"p": 2, "q": 1})
    world.acquire("c", "q", holder="first", claims=("q", "p"))
    start_all(world)
    world.acquire("c", "p", holder="warm")
    start_all(world)
    world.release("c", "t2")
    big = world.acquire("c", "p", holder="big", claims=("p", "q"), priority=0)
    known = world.clients["c"]
    assert big in known.held, "one of two is safe to give"
    huge = world.acquire("c", "p", holder="huge", claims=("p", "q"), priority=0)
    assert huge in known.waiting
    newcomers = 0
    while newcomers <= 2 * PATIENCE:
        ticket = world.acquire("c", "p", holder=f"n{newcomers}", claims=("p",), priority=1)
        if ticket not in known.held:
            break
        newcomers += 1
        world.release("c", ticket)
    assert newcomers == PATIENCE
    world.release("c", big)
    world.release("c", "t1")
    assert huge in known.held
    assert ticket in known.held, "with the impatient one served, newcomers are welcome again"


def test_a_holder_that_claims_more_than_a_pool_has_is_served() -> None:
    world = make_world({"p": 2})
    tickets = [world.acquire("c", "p", holder="greedy", claims=("p",) * 5) for _ in range(2)]
    start_all(world)
    assert world.clients["c"].held.keys() == set(tickets)


@pytest.mark.parametrize("sharers", [1, 2, 3])
def test_a_shared_lease_comes_back_when_its_last_sharer_ends(sharers: int) -> None:
    world = make_world({"p": 1, "q": 1})
    tickets = [world.acquire("c", "p", holder=f"s{i}", claims=("p", "q"), share="g") for i in range(sharers)]
    start_all(world)
    known = world.clients["c"]
    assert known.held.keys() == set(tickets)
    other = world.acquire("c", "p", holder="other", claims=("p", "q"))
    for ticket in tickets:
        assert other in known.waiting
        world.release("c", ticket)
    assert other in known.held


def start_all(world: World) -> None:
    for host_id in [host_id for host_id, host in world.hosts.items() if not host.ready]:
        world.start(host_id)


def test_victims_of_a_large_mess_are_the_young_ones() -> None:
    """Eight rollouts at once, four types of one slot each, no claims named: the oldest is never a victim."""
    rng = random.Random(7)
    world = make_world(dict.fromkeys(NAMES, 1))
    rollouts = [Rollout(f"r{i}", rng.sample(NAMES, 3), named=False) for i in range(40)]
    play(world, rollouts, rng, 8)
    assert rollouts[0].attempts == 1
    assert sum(rollout.attempts for rollout in rollouts) < 10 * len(rollouts)
