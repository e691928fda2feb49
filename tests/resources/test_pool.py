"""One pool at a time: growth, shrinking, back-off, renewal, health, draining."""

from __future__ import annotations

import pytest
from resources.world import World

from agentfly.resources.core.types import PoolLimits, StartHost


def world_of(**limits: object) -> World:
    world = World({"p": PoolLimits("p", **limits)})  # type: ignore[arg-type]
    world.client("c")
    return world


def start_all(world: World) -> None:
    for host_id in [host_id for host_id, host in world.hosts.items() if not host.ready]:
        world.start(host_id)


def sizes(world: World) -> tuple[int, int, int]:
    """Size, idle, leased."""
    (stats,) = world.core.stats()
    return stats.size, stats.idle, stats.leased


def test_grows_by_what_waits_and_never_over_its_bound() -> None:
    world = world_of(slots=4, max_size=10)
    for number in range(1, 31):
        world.acquire("c", "p")
        assert sizes(world)[0] == min(10, -(-number // 4) * 4)
    start_all(world)
    assert sizes(world) == (10, 0, 10)
    assert len(world.clients["c"].waiting) == 20


def test_keeps_its_minimum_and_its_spares() -> None:
    world = world_of(slots=1, min_size=2, spares=1, max_size=5)
    assert sizes(world)[0] == 2
    start_all(world)
    for leased, size in ((1, 2), (2, 3), (3, 4), (4, 5), (5, 5)):
        world.acquire("c", "p")
        assert sizes(world)[0] == size, f"with {leased} leased"
        start_all(world)


def test_a_host_that_would_come_too_late_is_not_started() -> None:
    world = world_of(slots=1, max_size=4, resets=False)
    first = world.acquire("c", "p")
    world.now = 10.0  # a start takes ten seconds
    start_all(world)
    for _ in range(5):  # and a lease half a second
        world.now += 0.5
        world.release("c", first)
        first = world.acquire("c", "p")
    world.acquire("c", "p")
    assert sizes(world)[0] == 1, "the queue is served long before a new host is up"
    for _ in range(30):
        world.advance(0.5)
    assert sizes(world)[0] == 2, "unless the leases get longer than they were"


def test_shrinks_when_idle_and_fills_hosts_so_that_it_can() -> None:
    world = world_of(slots=2, max_size=8, idle_ttl=10.0, resets=False)
    tickets = [world.acquire("c", "p") for _ in range(8)]
    start_all(world)
    for ticket in tickets[:7]:
        world.release("c", ticket)
    keep = world.clients["c"].held[tickets[7]][1].host
    for _ in range(30):  # a light load that would fit into one host
        world.advance(1.0)
        ticket = world.acquire("c", "p")
        assert world.clients["c"].held[ticket][1].host == keep, "the fullest host comes first"
        world.release("c", ticket)
    assert sizes(world) == (2, 1, 1)
    world.release("c", tickets[7])
    world.advance(11.0)
    assert sizes(world) == (0, 0, 0)


def test_does_not_shrink_below_minimum_and_spares() -> None:
    world = world_of(slots=1, min_size=1, spares=2, max_size=6, idle_ttl=5.0, resets=False)
    tickets = [world.acquire("c", "p") for _ in range(4)]
    start_all(world)
    for ticket in tickets:
        world.release("c", ticket)
    for _ in range(10):
        world.advance(5.0)
    assert sizes(world) == (2, 2, 0)


def test_back_off_then_the_breaker_opens_and_tells_the_reason() -> None:
    world = world_of(slots=1, max_size=4, start_retries=2)
    delays: list[float] = []
    for _ in range(3):
        world.acquire("c", "p")
    for failing in (3, 1, 1):
        starting = list(world.hosts)
        assert len(starting) == failing, "one at a time once something has failed"
        delays.append(delay_of(world, starting[-1]))
        for host_id in starting:
            world.fail(host_id, "no such image")
    assert delays == [0.0, 0.5, 1.0]
    assert [reject.error for reject in world.rejects] == ["start_failed"] * 3
    assert "no such image" in world.rejects[0].message
    assert not world.hosts
    world.acquire("c", "p")
    assert len(world.rejects) == 4, "nothing is tried while the breaker is open"


def test_after_a_while_one_host_is_tried_and_success_closes_the_breaker() -> None:
    world = world_of(slots=1, max_size=4, start_retries=0)
    world.acquire("c", "p")
    world.fail(next(iter(world.hosts)))
    world.advance(31.0)
    tickets = [world.acquire("c", "p") for _ in range(3)]
    assert len(world.hosts) == 1, "a trial"
    assert delay_of(world, next(iter(world.hosts))) == 0.0
    start_all(world)
    assert len(world.hosts) == 3, "all is well again"
    start_all(world)
    assert world.clients["c"].held.keys() == set(tickets)


def test_a_failed_trial_opens_it_again() -> None:
    world = world_of(slots=1, max_size=4, start_retries=0)
    world.acquire("c", "p")
    world.fail(next(iter(world.hosts)))
    world.advance(31.0)
    world.acquire("c", "p")
    world.fail(next(iter(world.hosts)))
    assert len(world.rejects) == 2
    world.acquire("c", "p")
    assert len(world.rejects) == 3


def test_those_who_wait_stay_while_other_hosts_work() -> None:
    world = world_of(slots=1, max_size=2, start_retries=0)
    first = world.acquire("c", "p")
    start_all(world)
    second = world.acquire("c", "p")
    world.fail(next(host_id for host_id, host in world.hosts.items() if not host.ready))
    assert not world.rejects
    world.release("c", first)
    world.reset(0, ok=True)
    assert second in world.clients["c"].held


def test_a_host_that_keeps_dying_young_opens_the_breaker() -> None:
    world = world_of(slots=1, max_size=1, start_retries=2)
    world.acquire("c", "p")
    for _ in range(3):
        assert not world.rejects
        start_all(world)
        world.acquire("c", "p")  # somebody is always there
        world.kill_host(next(iter(world.hosts)))
    assert {reject.error for reject in world.rejects} == {"start_failed"}
    assert "dies" in world.rejects[0].message


def test_a_host_that_has_served_may_die_as_often_as_it_likes() -> None:
    world = world_of(slots=1, max_size=1, start_retries=0, resets=False)
    for _ in range(5):
        ticket = world.acquire("c", "p")
        start_all(world)
        world.release("c", ticket)
        world.acquire("c", "p")
        world.kill_host(next(iter(world.hosts)))
        world.client("c").held.clear()
    assert not world.rejects


def test_a_resource_is_replaced_after_its_uses() -> None:
    world = world_of(slots=1, max_size=1, max_uses=2)
    renewals = []
    for _ in range(4):
        ticket = world.acquire("c", "p")
        start_all(world)
        world.release("c", ticket)
        renewals.append(world.resets[0].renew)
        world.reset(0, ok=True)
    assert renewals == [False, True, False, True]


def test_an_idle_resource_is_replaced_when_too_old() -> None:
    world = world_of(slots=2, min_size=2, max_size=2, max_age=60.0)
    start_all(world)
    world.advance(59.0)
    assert not world.resets
    world.advance(2.0)
    assert [reset.renew for reset in world.resets] == [True, True]
    world.reset(0, ok=True)
    world.reset(0, ok=True)
    world.advance(59.0)
    assert not world.resets


@pytest.mark.parametrize("limit", [{"max_uses": 2}, {"max_age": 60.0}])
def test_a_shared_resource_is_replaced_when_its_last_lease_has_ended(limit: dict[str, object]) -> None:
    world = world_of(slots=2, max_size=2, shared=True, **limit)
    first, second = world.acquire("c", "p"), world.acquire("c", "p")
    start_all(world)
    (old,) = world.hosts
    if "max_uses" in limit:
        world.release("c", first)
        first = world.acquire("c", "p")
        world.release("c", first)
    else:
        world.advance(61.0)
        world.release("c", first)
    third = world.acquire("c", "p")
    assert third in world.clients["c"].waiting, "it retires"
    world.release("c", second)
    assert old not in world.hosts
    start_all(world)
    assert third in world.clients["c"].held


def test_a_failed_reset_becomes_a_renewal_and_a_failed_renewal_the_end_of_the_host() -> None:
    world = world_of(slots=2, max_size=2)
    first, second = world.acquire("c", "p"), world.acquire("c", "p")
    start_all(world)
    (old,) = world.hosts
    world.release("c", first)
    world.reset(0, ok=False)
    assert world.resets[0].renew
    world.reset(0, ok=False)
    world.acquire("c", "p")
    assert old in world.hosts, "it still carries a lease"
    assert len(world.hosts) == 2
    world.release("c", second)
    assert old not in world.hosts


def test_idle_resources_are_asked_how_they_are_and_replaced() -> None:
    world = world_of(slots=2, min_size=2, max_size=2, health_interval=10.0)
    start_all(world)
    leased = world.acquire("c", "p")
    world.advance(9.0)
    assert not world.checks
    world.advance(2.0)
    (check,) = world.checks
    ((slot, epoch),) = check.slots
    assert slot != world.clients["c"].held[leased][1].slot, "who works isn't asked"
    world.fail_check(check, slot, epoch)
    assert world.resets[0].renew
    world.reset(0, ok=True)
    world.fail_check(check, slot, epoch)  # late news
    assert not world.resets


def test_a_shared_resource_that_is_unwell_is_replaced_at_once() -> None:
    world = world_of(slots=2, max_size=2, shared=True, health_interval=10.0)
    world.acquire("c", "p")
    start_all(world)
    (old,) = world.hosts
    world.advance(11.0)
    waiting = [world.acquire("c", "p") for _ in range(3)]
    world.fail_check(world.checks[0], *world.checks[0].slots[0])
    assert old not in world.hosts
    start_all(world)
    assert waiting[1] in world.clients["c"].held


def test_a_full_queue_refuses_at_once() -> None:
    world = world_of(slots=1, max_size=1, max_waiting=2, resets=False)
    for _ in range(3):
        world.acquire("c", "p")
    assert [(reject.error, reject.waiting, reject.retry_after) for reject in world.rejects] == [("saturated", 2, None)]
    start_all(world)
    world.now += 4.0
    world.release("c", next(iter(world.clients["c"].held)))
    for _ in range(3):
        world.acquire("c", "p")
    assert world.rejects[-1].retry_after == 4.0


def test_draining_ends_with_the_last_lease_and_filling_goes_on_where_it_was() -> None:
    world = world_of(slots=2, max_size=4, resets=False)
    first = world.acquire("c", "p")
    start_all(world)
    world.resize("p", 0, 0)
    second = world.acquire("c", "p")
    assert second in world.clients["c"].waiting
    assert len(world.hosts) == 1
    world.release("c", first)
    assert not world.hosts
    world.resize("p", 0, 4)
    start_all(world)
    assert second in world.clients["c"].held


def test_a_silent_clients_leases_come_home_in_order() -> None:
    world = world_of(slots=1, max_size=1)
    world.acquire("dead", "p")
    start_all(world)
    world.acquire("dead", "p")
    mine = world.acquire("c", "p")
    world.silent.add("dead")
    world.advance(15.0)
    assert not world.resets
    world.advance(0.5)
    assert len(world.resets) == 1, "the dead one's own request wasn't served first"
    world.reset(0, ok=True)
    assert mine in world.clients["c"].held
    assert world.ended == {"client_gone": 1}


def delay_of(world: World, host_id: str) -> float:
    return next(action.delay for action in world.actions if isinstance(action, StartHost) and action.host == host_id)
