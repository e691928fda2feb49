"""Leases through the real manager: typed proxies, setup, reset, exceptions, streams, sharing, refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from resources.toys import Counter, Recorder, events

from agentfly.errors import AcquireTimeout, ModelError, PoolSaturated, ResourceDied, StaleLease, StartFailed
from agentfly.resources import Fault, ResourceClient, ResourceSpec


async def test_a_lease_is_set_up_called_and_reset(client: ResourceClient) -> None:
    spec = ResourceSpec(Counter, name="a_lease_is_set_up_ca", args={"label": "x"})
    lease = await client.acquire(spec, setup={"given": 5})
    assert await lease.resource.add(2) == 2
    assert await lease.resource.add() == 3
    assert await lease.resource.state() == ("x", 5, 1, 0)
    lease.release()
    again = await client.acquire(spec)
    assert await again.resource.state() == ("x", None, 2, 1)
    assert await again.resource.add() == 1


async def test_plain_methods_run_in_a_thread_and_generators_stream(client: ResourceClient) -> None:
    lease = await client.acquire(ResourceSpec(Counter, name="plain_methods_run_in"))
    assert (await _awaited(lease.resource.thread())).startswith("plain_methods")
    assert [number async for number in lease.resource.count_to(4)] == [0, 1, 2, 3]
    seen = []

    async def read() -> None:
        async for number in lease.resource.count_to(-1):
            seen.append(number)

    with pytest.raises(KeyError, match="the stream broke"):
        await read()
    assert seen == [0, 1, 2]


async def test_exceptions_keep_their_type_and_tell_where(client: ResourceClient) -> None:
    faults: list[Fault] = []
    lease = await client.acquire(ResourceSpec(Counter, name="exceptions_keep_thei"), faults=faults.append)
    with pytest.raises(LookupError, match="nothing there") as caught:
        await lease.resource.fail()
    assert any("in fail" in note for note in caught.value.__notes__)
    with pytest.raises(TypeError):
        await lease.resource.unsendable()
    with pytest.raises(RuntimeError, match="ValueError: with a lock"):
        await lease.resource.raise_unsendable()
    assert not faults, "none of these is the engine's fault"
    with pytest.raises(ModelError):
        await lease.resource.model_error()
    assert [fault.kind for fault in faults] == ["ModelError"]
    assert await lease.resource.add() == 1, "the resource goes on"


async def test_only_its_methods_are_there(client: ResourceClient) -> None:
    lease = await client.acquire(ResourceSpec(Counter, name="only_its_methods_are"))
    for name in ("value", "_private", "reset", "stop", "nothing"):
        with pytest.raises(AttributeError, match="stay in the host"):
            getattr(lease.resource, name)


async def test_a_call_after_the_release_is_stale(client: ResourceClient) -> None:
    faults: list[Fault] = []
    lease = await client.acquire(ResourceSpec(Counter, name="a_call_after_the_rel"), faults=faults.append)
    proxy = lease.resource
    lease.release()
    with pytest.raises(StaleLease):
        await proxy.add()
    assert not faults, "a holder's own mistake is no fault of the engine"
    lease.release()  # twice changes nothing


async def test_whole_spec_is_the_key(client: ResourceClient) -> None:
    small = await client.acquire(ResourceSpec(Counter, name="whole_spec_is_the_ke", args={"start_at": 1}))
    large = await client.acquire(ResourceSpec(Counter, name="whole_spec_is_the_ke", args={"start_at": 64}))
    assert await small.resource.add(0) == 1
    assert await large.resource.add(0) == 64
    same = ResourceSpec(Counter, name="whole_spec_is_the_ke", args={"start_at": 1})
    assert sum(name.startswith("whole_spec") for name in await client.stats()) == 2
    small.release()
    assert await (await client.acquire(same)).resource.add(0) == 1
    assert sum(name.startswith("whole_spec") for name in await client.stats()) == 2


async def test_shared_resources_are_one_and_exclusive_ones_are_not(client: ResourceClient) -> None:
    shared = ResourceSpec(Counter, name="shared_resources_are", shared=True, slots=4, max_size=4)
    exclusive = ResourceSpec(Counter, name="shared_resources_are", slots=4, max_size=4)
    for spec, number in ((shared, 1), (exclusive, 4)):
        leases = [await client.acquire(spec) for _ in range(4)]
        assert len({await lease.resource.identity() for lease in leases}) == number


async def test_timeout_is_kept_at_capacity(client: ResourceClient) -> None:
    spec = ResourceSpec(Counter, name="timeout_is_kept_at_c", max_size=1, acquire_timeout=0.2)
    held = await client.acquire(spec, timeout=30)
    with pytest.raises(AcquireTimeout, match=r"0\.2 s"):
        await client.acquire(spec)
    held.release()
    assert await (await client.acquire(spec, timeout=30)).resource.add() == 1


async def test_cancelled_waiters_leave_no_trace(client: ResourceClient) -> None:
    spec = ResourceSpec(Counter, name="cancelled_waiters_le", max_size=1)
    starting = [asyncio.create_task(client.acquire(spec)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in starting[:2]:
        task.cancel()
    lease = await starting[2]
    waiting = asyncio.create_task(client.acquire(spec))
    await asyncio.sleep(0)
    waiting.cancel()
    lease.release()
    assert await (await client.acquire(spec, timeout=30)).resource.add() == 1
    stats = (await client.stats())["cancelled_waiters_le"]
    assert (stats.leased, stats.waiting, stats.size) == (1, 0, 1)


async def test_a_cancelled_call_is_cancelled_in_the_host(client: ResourceClient, tmp_path: Path) -> None:
    lease = await client.acquire(ResourceSpec(Counter, name="a_cancelled_call_is_"))
    note = tmp_path / "note"
    call = asyncio.create_task(lease.resource.hang(str(note)))
    assert await lease.resource.add() == 1
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    for _ in range(200):
        if note.exists():
            break
        await asyncio.sleep(0.05)
    assert note.read_text() == "cancelled"


async def test_served_by_age_then_arrival(client: ResourceClient) -> None:
    spec = ResourceSpec(Counter, name="served_by_age_then_a", max_size=1)
    first = await client.acquire(spec)
    order: list[float] = []

    async def wait(priority: float) -> None:
        lease = await client.acquire(spec, priority=priority)
        order.append(priority)
        lease.release()

    tasks = [asyncio.create_task(wait(priority)) for priority in (3, 1, 2, 1.5)]
    while (await client.stats())["served_by_age_then_a"].waiting < 4:
        pass
    first.release()
    await asyncio.gather(*tasks)
    assert order == [1, 1.5, 2, 3]


async def test_a_full_queue_refuses_with_an_estimate(client: ResourceClient) -> None:
    spec = ResourceSpec(Counter, name="a_full_queue_refuses", max_size=1, max_waiting=1)
    (await client.acquire(spec)).release()
    held = await client.acquire(spec)
    waiting = asyncio.create_task(client.acquire(spec))
    while (await client.stats())["a_full_queue_refuses"].waiting < 1:
        await asyncio.sleep(0)
    with pytest.raises(PoolSaturated, match="is full") as caught:
        await client.acquire(spec)
    assert caught.value.waiting == 1
    assert caught.value.retry_after is not None
    held.release()
    await waiting


async def test_those_who_share_get_one_lease_set_up_once(client: ResourceClient) -> None:
    spec = ResourceSpec(Counter, name="those_who_share_get_", max_size=2)
    leases = await asyncio.gather(*(client.acquire(spec, share="g", setup={"given": i}) for i in range(3)))
    assert await leases[0].resource.add() == 1
    assert await leases[1].resource.add() == 2
    _, given, setups, _ = await leases[2].resource.state()
    assert given in (0, 1, 2)
    assert setups == 1
    for lease in leases[:2]:
        lease.release()
    assert await leases[2].resource.add() == 3
    assert (await client.stats())["those_who_share_get_"].leased == 1


async def test_what_cant_start_tells_its_waiters_why(client: ResourceClient, tmp_path: Path) -> None:
    spec = ResourceSpec(
        Recorder, name="what_cant_start_tell", args={"folder": str(tmp_path), "fail_start": True}, start_retries=1
    )
    waiting = [asyncio.create_task(client.acquire(spec)) for _ in range(3)]
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(outcome, StartFailed)
        assert "no such device" in str(outcome)
    assert events(tmp_path, "start") == events(tmp_path, "stop") == 4  # three at once, then one
    with pytest.raises(StartFailed):
        await client.acquire(spec)  # at once: nothing is tried while the breaker is open
    assert events(tmp_path, "start") == 4


async def test_a_failed_reset_replaces_the_resource(client: ResourceClient, tmp_path: Path) -> None:
    spec = ResourceSpec(
        Recorder, name="a_failed_reset_repla", args={"folder": str(tmp_path), "fail_reset": True}, max_size=1
    )
    for _ in range(2):
        (await client.acquire(spec, timeout=60)).release()
    (await client.acquire(spec, timeout=60)).release()
    assert events(tmp_path, "start") >= 3


async def test_an_unhealthy_resource_is_replaced_between_leases(client: ResourceClient, tmp_path: Path) -> None:
    spec = ResourceSpec(Recorder, name="an_unhealthy_resourc", args={"folder": str(tmp_path)}, max_size=1)
    lease = await client.acquire(spec)
    await lease.resource.sicken()
    lease.release()
    await client.acquire(spec, timeout=60)
    assert events(tmp_path, "start") == 2
    assert events(tmp_path, "stop") == 1


async def test_broadcast_reaches_hosts_that_start_later(client: ResourceClient, tmp_path: Path) -> None:
    spec = ResourceSpec(
        Recorder, name="broadcast_reaches_ho", args={"folder": str(tmp_path)}, shared=True, slots=1, max_size=2
    )
    first = await client.acquire(spec)
    payload = bytes(4 << 20)
    assert await client.broadcast(spec, "set_version", 1, payload, replay=True) == [len(payload)]
    assert await client.broadcast(spec, "set_version", 2, payload, replay=True) == [len(payload)]
    second = await client.acquire(spec)
    assert await second.resource.get_version() == await first.resource.get_version() == 2
    assert await client.broadcast(spec, "get_version") == [2, 2]


async def test_setup_of_a_dying_host_is_tried_elsewhere(client: ResourceClient) -> None:
    spec = ResourceSpec(Counter, name="setup_of_a_dying_hos", max_size=2)
    doomed = await client.acquire(spec)
    with pytest.raises(ResourceDied):
        await doomed.resource.die()
    assert await (await client.acquire(spec, setup={"given": 1}, timeout=60)).resource.add() == 1


async def test_waiters_are_many_and_releases_get_through(client: ResourceClient) -> None:
    """The trap of an asynchronous actor: waiters parked inside it shut the release out."""
    spec = ResourceSpec(Counter, name="waiters_are_many_and", max_size=1)
    held = await client.acquire(spec)
    waiting = [asyncio.create_task(client.acquire(spec)) for _ in range(3000)]
    while (await client.stats())["waiters_are_many_and"].waiting < 3000:
        await asyncio.sleep(0.01)
    for task in waiting[1:]:
        task.cancel()
    held.release()
    (await asyncio.wait_for(waiting[0], 30)).release()
    await asyncio.gather(*waiting[1:], return_exceptions=True)
    (await client.acquire(spec, timeout=30)).release()


async def _awaited(call: object) -> str:
    # A plain method's proxy is awaited though its own type isn't awaitable.
    assert hasattr(call, "__await__")
    result: str = await call
    return result
