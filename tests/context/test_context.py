"""Scopes, sharing, ledgers: on a client without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from agentfly.context import Context, Fault, LeaseBook, Task
from agentfly.errors import ResourceError
from agentfly.resources import Resource, ResourceSpec
from agentfly.resources.faults import FaultSink


class Thing(Resource):
    """Nothing but a type."""


class Other(Resource):
    """Another one."""


THING = ResourceSpec(Thing)
OTHER = ResourceSpec(Other)


class FakeLease:
    """Knows its asker and whether it was released."""

    def __init__(self, number: int, asked: Mapping[str, Any]) -> None:
        self.number = number
        self.asked = asked
        self.lost = False
        self.released = 0

    def seen_by(self, faults: FaultSink, waits: AbstractContextManager[Any] | None = None) -> Any:
        return View(self, faults)

    def release(self) -> None:
        self.released += 1


class View:
    """What a rollout gets."""

    def __init__(self, lease: FakeLease, faults: FaultSink) -> None:
        self.lease = lease
        self.faults = faults


class FakeClient:
    """Grants when told."""

    def __init__(self) -> None:
        self.leases: list[FakeLease] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    async def acquire(self, spec: ResourceSpec[Any], *, faults: FaultSink, **asked: Any) -> FakeLease:
        await self.open.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.leases.append(FakeLease(len(self.leases), {"spec": spec, **asked}))
        return self.leases[-1]


def context(client: FakeClient | None, *, name: str = "g.0", **options: Any) -> Context:
    task = Task("task", {"answer": "4"})
    return Context(rollout_id=name, group_id="g", task=task, client=client, **options)  # type: ignore[arg-type]


async def test_the_same_spec_is_the_same_resource_also_for_parallel_calls() -> None:
    client = FakeClient()
    ctx = context(client)
    first, second = await asyncio.gather(ctx.acquire(THING, setup={"a": 1}), ctx.acquire(THING, setup={"a": 2}))
    assert first is second is await ctx.acquire(THING)
    assert await ctx.acquire(ResourceSpec(Thing)) is first, "an equal spec is the same"
    assert len(client.leases) == 1
    assert client.leases[0].asked["setup"] == {"a": 1}


async def test_a_second_spec_is_another_resource() -> None:
    client = FakeClient()
    ctx = context(client)
    assert await ctx.acquire(THING) is not await ctx.acquire(OTHER)
    assert await ctx.acquire(THING) is not await ctx.acquire(ResourceSpec(Thing, max_size=2))
    assert [lease.asked["spec"].resource for lease in client.leases] == [Thing, Other, Thing]


async def test_close_gives_everything_back_once() -> None:
    client = FakeClient()
    ctx = context(client)
    await ctx.acquire(THING)
    await ctx.acquire(OTHER, scope="group")
    await ctx.close()
    await ctx.close()
    assert [lease.released for lease in client.leases] == [1, 1]
    with pytest.raises(ResourceError, match="scope has ended"):
        await ctx.acquire(THING)


async def test_closing_ends_a_wait_and_what_it_would_have_got() -> None:
    client = FakeClient()
    client.open.clear()
    ctx = context(client)
    waiting = asyncio.create_task(ctx.acquire(THING))
    await asyncio.sleep(0)
    await ctx.close()
    with pytest.raises(ResourceError, match="scope has ended"):
        await waiting
    client.open.set()
    await asyncio.sleep(0)
    assert not client.leases


async def test_one_who_is_cancelled_doesnt_take_the_lease_from_the_others() -> None:
    client = FakeClient()
    client.open.clear()
    ctx = context(client)
    first, second = asyncio.create_task(ctx.acquire(THING)), asyncio.create_task(ctx.acquire(THING))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    client.open.set()
    assert (await second).lease is client.leases[0]  # type: ignore[attr-defined]


async def test_a_failed_acquire_may_be_tried_again() -> None:
    client = FakeClient()
    client.error = ResourceError("not now")
    ctx = context(client)
    with pytest.raises(ResourceError, match="not now"):
        await ctx.acquire(THING)
    assert (await ctx.acquire(THING)).lease is client.leases[0]  # type: ignore[attr-defined]


async def test_call_scope_ends_with_the_call() -> None:
    client = FakeClient()
    ctx = context(client)

    async def tool() -> tuple[Any, Any]:
        with ctx.call_scope():
            await asyncio.sleep(0)
            return await ctx.acquire(THING, scope="call"), await ctx.acquire(THING, scope="call")

    (first, same), (second, _) = await asyncio.gather(tool(), tool())
    assert first is same
    assert first is not second, "each call has its own"
    assert [lease.released for lease in client.leases] == [1, 1]
    with pytest.raises(ResourceError, match="outside of a tool call"):
        await ctx.acquire(THING, scope="call")


async def test_what_is_asked_of_the_engine() -> None:
    client = FakeClient()
    ctx = context(client, priority=3.0, claims=[THING, OTHER], shared=LeaseBook())
    await ctx.acquire(THING, timeout=5)
    await ctx.acquire(THING, scope="group")
    await ctx.acquire(THING, scope="global")
    own, group, everybody = (lease.asked for lease in client.leases)
    assert own["priority"] == 3.0
    assert own["timeout"] == 5
    assert own["claims"] == group["claims"] == [THING, OTHER]
    assert own["holder"] == group["holder"] != ""
    assert (own["share"], group["share"], everybody["share"]) == ("", "group g", "global")
    assert (everybody["holder"], everybody["claims"]) == ("", ())
    again = context(client)
    await again.acquire(THING)
    assert client.leases[-1].asked["holder"] != own["holder"], "another attempt at the rollout is another holder"


async def test_global_leases_are_the_processs_and_faults_the_callers() -> None:
    client = FakeClient()
    book = LeaseBook()
    one, two = context(client, shared=book), context(client, name="g.1", shared=book)
    first, second = await one.acquire(THING, scope="global"), await two.acquire(THING, scope="global")
    assert len(client.leases) == 1
    second.faults(Fault("ResourceDied", "Thing", "it died"))  # type: ignore[attr-defined]
    assert (len(one.faults), len(two.faults)) == (0, 1)
    assert first is not second
    await one.close()
    await two.close()
    assert client.leases[0].released == 0
    book.close()
    assert client.leases[0].released == 1


async def test_a_lost_lease_is_replaced_for_the_next_who_asks() -> None:
    client = FakeClient()
    book = LeaseBook()
    await context(client, shared=book).acquire(THING, scope="global")
    client.leases[0].lost = True
    view: Any = await context(client, shared=book).acquire(THING, scope="global")
    assert view.lease is client.leases[1]
    assert client.leases[0].released == 1


async def test_waiting_is_counted_while_it_lasts_and_once_for_parallel_waits() -> None:
    client = FakeClient()
    client.open.clear()
    ctx = context(client)
    waits = [asyncio.create_task(ctx.acquire(spec)) for spec in (THING, OTHER)]
    await asyncio.sleep(0.05)
    assert 0.04 < ctx.waited < 5
    during = ctx.waited
    client.open.set()
    await asyncio.gather(*waits)
    after = ctx.waited
    assert after >= during
    assert ctx.waited == after


async def test_without_an_engine_acquire_says_so() -> None:
    with pytest.raises(ResourceError, match="no resource engine"):
        await context(None).acquire(THING)


def test_identity_log_and_random_numbers() -> None:
    one, same, other = context(None, seed=1), context(None, seed=1), context(None, seed=2)
    assert one.task["answer"] == "4"
    assert one.rng.random() == same.rng.random() != other.rng.random()
    one.log(a=1, b=2)
    one.log(a=3)
    assert one.metrics == {"a": 3.0, "b": 2.0}
