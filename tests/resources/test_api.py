"""External APIs through real hosts, against a real HTTP service that answers 429."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import resources.web
from ray import cloudpickle
from resources.web import EchoClient, Service

import agentfly.agent as af
from agentfly.context import Context, Task
from agentfly.errors import BudgetSpent, ConfigError, RateLimited
from agentfly.resources import ResourceClient
from agentfly.resources.api import ApiSpec

cloudpickle.register_pickle_by_value(resources.web)


@pytest_asyncio.fixture
async def service() -> AsyncIterator[Service]:
    async with Service().serving() as running:
        yield running


def api(service: Service, **options: Any) -> ApiSpec[EchoClient]:
    return ApiSpec(EchoClient, args={"url": service.url}, **options)


def context(client: ResourceClient, name: str = "r") -> Context:
    return Context(rollout_id=name, group_id="g", task=Task("t", {}), client=client)


async def test_a_refusal_stops_all_rollouts_for_as_long_as_the_service_asks(
    client: ResourceClient, service: Service
) -> None:
    spec = api(service, concurrency=2)
    contexts = [context(client, f"r{number}") for number in range(4)]
    leased = [await ctx.acquire(spec) for ctx in contexts]
    assert await leased[0].echo("warm") == "warm"
    service.refuse = ["1"]
    service.arrivals.clear()
    texts = [f"text {number}" for number in range(12)]
    echoed = await asyncio.gather(*(leased[n % 4].echo(text) for n, text in enumerate(texts)))
    assert echoed == texts
    (refused,) = service.refusals
    during = [arrival for arrival in service.arrivals if refused < arrival < refused + 1.0]
    assert len(during) <= 1, "only what was under way already may arrive"
    assert len(service.arrivals) == len(texts) + 1
    usage = await spec.usage(client)
    assert (usage.calls, usage.refusals, usage.output_tokens) == (13, 1, 1300)
    assert (usage.waiting, usage.under_way) == (0, 0)
    assert sum(ctx.waited for ctx in contexts) >= 0.9
    for ctx in contexts:
        await ctx.close()


async def test_waiting_for_the_api_is_nobodys_time(client: ResourceClient, service: Service) -> None:
    spec = api(service)

    @af.tool(timeout=3)
    async def ask(text: str, ctx: Context) -> str:
        """Ask.

        Args:
            text: what.
        """
        return await (await ctx.acquire(spec)).echo(text)

    ctx = context(client)
    await ask.call({"text": "the host is up"}, ctx)
    before = ctx.waited
    service.refuse = ["4"]
    result = await ask.call({"text": "hello"}, ctx)
    assert (result.content, result.is_error) == ("hello", False)
    assert ctx.waited - before > 3.9
    assert ctx.faults == []
    await ctx.close()


async def test_a_cancelled_call_leaves_the_queue(client: ResourceClient, service: Service) -> None:
    spec = api(service, requests_per_minute=1.0)
    ctx = context(client)
    echo = await ctx.acquire(spec)
    await echo.echo("the only one for a minute")
    waiting = asyncio.create_task(echo.echo("never"))
    while not (await spec.usage(client)).waiting:
        await asyncio.sleep(0.01)
    assert ctx.waited > 0
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    while (await spec.usage(client)).waiting:
        await asyncio.sleep(0.01)
    assert len(service.arrivals) == 1
    await ctx.close()


async def test_streams_threads_and_errors_go_through_the_same_gate(client: ResourceClient, service: Service) -> None:
    spec = api(service, price_per_call=1.0, price_per_output_token=0.01)
    ctx = context(client)
    echo = await ctx.acquire(spec)
    service.refuse = ["0.2", None]
    assert [word async for word in echo.words("one two three")] == ["one", "two", "three"]
    assert await asyncio.gather(*(_awaited(echo.echo_in_a_thread(str(n))) for n in range(3))) == ["0", "1", "2"]
    with pytest.raises(LookupError, match="nothing there"):
        await echo.broken()
    usage = await spec.usage(client)
    assert (usage.calls, usage.refusals, usage.output_tokens) == (5, 2, 400)
    assert usage.cost == pytest.approx(5 * 1.0 + 400 * 0.01 + 3 * 0.5)
    assert ctx.faults == []
    await ctx.close()


async def test_an_api_that_goes_on_refusing_is_a_fault_of_the_engines(client: ResourceClient, service: Service) -> None:
    spec = api(service, max_retries=2)
    ctx = context(client)
    with pytest.raises(RateLimited, match="API 'EchoClient' goes on refusing calls for their rate: come back later"):
        await (await ctx.acquire(spec)).always_refused()
    assert [fault.kind for fault in ctx.faults] == ["RateLimited"]
    assert (await spec.usage(client)).refusals == 3
    await ctx.close()


async def test_the_budget_is_kept(client: ResourceClient, service: Service) -> None:
    spec = api(service, price_per_call=0.4, budget=1.0, concurrency=8)
    ctx = context(client)
    echo = await ctx.acquire(spec)
    outcomes = await asyncio.gather(*(_awaited(echo.echo(str(n))) for n in range(6)), return_exceptions=True)
    assert sum(isinstance(outcome, str) for outcome in outcomes) == 2 == len(service.arrivals)
    refused = [outcome for outcome in outcomes if isinstance(outcome, BudgetSpent)]
    assert len(refused) == 4
    assert "of its budget of 1" in str(refused[0])
    assert {fault.kind for fault in ctx.faults} == {"BudgetSpent"}
    await ctx.close()


def test_a_spec_is_checked_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match=r"API spec 'EchoClient': requests_per_minute is -1, it must be positive"):
        ApiSpec(EchoClient, requests_per_minute=-1)
    assert ApiSpec(EchoClient, concurrency=2).key != ApiSpec(EchoClient, concurrency=3).key


async def _awaited(work: Any) -> Any:
    return await work
