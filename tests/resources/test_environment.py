"""Environments in pools: episodes, their score, their limits, and that nothing of one is in the next."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray import cloudpickle

import agentfly.agent as af
from agentfly.context import Context, Task
from agentfly.errors import ConfigError
from agentfly.resources import Resource, ResourceClient
from agentfly.resources.environment import Environment, EnvironmentSpec, EpisodeKeeper, Step

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Guess(Environment[str, int]):
    """Guess a number below ten."""

    def __init__(self) -> None:
        self.secret: int | None = None
        self.left_behind: list[int] = []
        self.ended = 0

    async def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> str:
        assert not self.left_behind, "the last episode was not ended"
        below = (options or {}).get("below", 10)
        self.secret = random.Random(seed).randrange(below)
        return f"a number below {below}"

    async def step(self, action: int) -> Step[str]:
        assert self.secret is not None
        self.left_behind.append(action)
        if action == self.secret:
            return Step("right", 1.0, terminated=True, info={"tries": len(self.left_behind)})
        return Step("higher" if action < self.secret else "lower", -0.1)

    async def end(self) -> None:
        self.left_behind.clear()
        self.ended += 1

    async def times_ended(self) -> int:
        """A method of its own."""
        return self.ended


class Plain(Environment[dict[str, int], dict[str, int]]):
    """Plain functions, structured data."""

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        return {"at": seed or 0}

    def step(self, action: dict[str, int]) -> Any:
        return Step({"at": action["to"]}, float(action["to"]))


async def guessed(guess: Guess) -> None:
    low, high = 0, 10
    while True:
        step = await guess.step(middle := (low + high) // 2)
        if step.over:
            return
        low, high = (middle + 1, high) if step.observation == "higher" else (low, middle)


async def test_a_lease_is_an_episode(client: ResourceClient) -> None:
    spec = EnvironmentSpec(Guess, slots=1, max_size=1)
    for seed in range(3):
        ctx = Context(rollout_id=f"r{seed}", group_id="g", task=Task("t", {}), client=client)
        guess = await ctx.acquire(spec, setup={"seed": seed, "options": {"below": 8}})
        state = await guess.episode()
        assert (state.observation, state.total, state.steps, state.over) == ("a number below 8", 0.0, 0, False)
        await guessed(guess)
        state = await guess.episode()
        assert state.terminated and not state.truncated
        assert state.total == pytest.approx(1.0 - 0.1 * (state.steps - 1))
        assert await guess.times_ended() == seed, "one episode, one end"
        await ctx.close()


async def test_structured_data_and_plain_functions(client: ResourceClient) -> None:
    lease = await client.acquire(EnvironmentSpec(Plain, max_steps=2), setup={"seed": 3})
    plain = lease.resource
    assert (await plain.episode()).observation == {"at": 3}
    assert not (await plain.step({"to": 5})).over
    assert (await plain.step({"to": 6})).truncated
    after = await plain.step({"to": 7})
    assert (after.observation, after.reward, after.truncated) == ({"at": 6}, 0.0, True), "it is over"
    assert (await plain.episode()).total == 11.0
    assert await plain.begin(seed=9) == {"at": 9}, "the lessee may play another"
    assert (await plain.episode()).steps == 0
    lease.release()


async def test_a_tool_and_a_reward_of_an_environment(client: ResourceClient) -> None:
    spec = EnvironmentSpec(Guess)

    @af.tool(claims=[spec])
    async def guess(number: int, ctx: Context) -> af.ToolResult:
        """Guess.

        Args:
            number: below ten.
        """
        step = await (await ctx.acquire(spec, setup={"seed": ctx.task["seed"]})).step(number)
        return af.ToolResult(step.observation, terminal=step.over)

    ctx = Context(rollout_id="r", group_id="g", task=Task("t", {"seed": 5}), client=client)
    secret = random.Random(5).randrange(10)
    wrong = await guess.call({"number": secret - 1}, ctx)
    assert (wrong.content, wrong.terminal) == ("higher", False)
    right = await guess.call({"number": secret}, ctx)
    assert (right.content, right.terminal) == ("right", True)
    assert (await (await ctx.acquire(spec)).episode()).total == pytest.approx(0.9)
    await ctx.close()


@given(seed=st.integers(0, 99), before=st.lists(st.integers(-5, 15), max_size=6), actions=st.lists(st.integers(-5, 15)))
def test_an_episode_after_another_is_as_in_a_new_environment(seed: int, before: list[int], actions: list[int]) -> None:
    async def play(keeper: EpisodeKeeper, wanted: list[int], chosen: int) -> list[Step[str]]:
        await keeper.setup(seed=chosen)
        return [await keeper.step(action) for action in wanted]

    async def both() -> None:
        used = EpisodeKeeper(Guess(), 5)
        await play(used, before, seed + 1)
        await used.reset()
        assert await play(used, actions, seed) == await play(EpisodeKeeper(Guess(), 5), actions, seed)

    asyncio.run(both())


async def test_there_is_no_episode_before_one_has_begun() -> None:
    keeper = EpisodeKeeper(Guess(), None)
    for call in (keeper.step(1), keeper.episode()):
        with pytest.raises(ConfigError, match="Guess has no episode"):
            await call


def test_a_spec_is_checked_when_it_is_made() -> None:
    class Other(Resource):
        pass

    with pytest.raises(ConfigError, match="Other is no subclass of agentfly.Environment"):
        EnvironmentSpec(Other)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="max_steps is 0"):
        EnvironmentSpec(Guess, max_steps=0)
    with pytest.raises(ConfigError, match="can't be shared"):
        EnvironmentSpec(Guess, shared=True)
    assert EnvironmentSpec(Guess).limits.resets
