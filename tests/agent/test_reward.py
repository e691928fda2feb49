"""Rewards: what they may ask for, what they may give, and how their failures are told."""

from __future__ import annotations

import asyncio
import fractions
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agent.contexts import context

import agentfly.agent as af
from agentfly.context import Context, Task
from agentfly.errors import ConfigError, ModelError, ResourceDied, RewardError


async def score(reward: af.Reward, final_response: str = "four", trajectory: object = None, **fields: Any) -> Any:
    return await reward(final_response=final_response, trajectory=trajectory, ctx=context(**fields))


@af.reward
def exact(final_response: str, answer: str) -> float:
    return float(final_response == answer)


@af.reward(name="format")
async def well_formed(final_response: str, most: int = 10) -> af.RewardResult:
    return af.RewardResult(len(final_response) <= most, {"length": len(final_response)})


async def test_parameters_are_filled_by_name() -> None:
    seen: dict[str, Any] = {}

    @af.reward
    def everything(
        trajectory: object, ctx: Context, task: Task, final_response: str, answer: str, hint: str = "-"
    ) -> int:
        seen.update(trajectory=trajectory, ctx=ctx, task=task, rest=(final_response, answer, hint))
        return 1

    marker = object()
    assert await score(everything, trajectory=marker, answer="4") == af.RewardResult(1.0)
    assert seen["trajectory"] is marker
    assert seen["task"] is seen["ctx"].task
    assert seen["rest"] == ("four", "4", "-")


async def test_a_default_gives_way_to_the_field() -> None:
    assert (await score(well_formed)).value == 1.0
    assert (await score(well_formed, most=3)).value == 0.0


async def test_sync_rewards_run_in_threads_and_async_ones_on_the_loop() -> None:
    @af.reward
    def sync() -> bool:
        return threading.current_thread() is threading.main_thread()

    @af.reward
    async def not_sync() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await score(sync)).value == 0.0
    assert (await score(not_sync)).value == 1.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (True, 1.0),
        (-0.5, -0.5),
        (np.float32(0.25), 0.25),
        (np.array(2), 2.0),
        (np.array([3.0]), 3.0),
        (np.bool_(True), 1.0),
        (fractions.Fraction(1, 2), 0.5),
        (af.RewardResult(np.float64(0.5), {"a": np.int64(1)}), 0.5),  # type: ignore[dict-item]
    ],
)
async def test_numbers_of_all_kinds(value: Any, expected: float) -> None:
    @af.reward
    def give() -> Any:
        return value

    result = await score(give)
    assert result.value == expected
    assert type(result.value) is float
    assert all(type(number) is float for number in result.metrics.values())


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -np.inf,
        None,
        "1.0",
        [1.0],
        np.zeros(2),
        1j,
        10**400,
        af.RewardResult(float("nan")),
        af.RewardResult("1"),  # type: ignore[arg-type]
        af.RewardResult(1.0, {"m": "x"}),  # type: ignore[dict-item]
    ],
    ids=repr,
)
async def test_anything_else_is_an_error_that_names_the_reward(value: Any) -> None:
    @af.reward
    def give() -> Any:
        return value

    with pytest.raises(RewardError, match="reward 'give' returned"):
        await score(give)


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit("odd"), RewardError("odd"), KeyError("odd")])
@pytest.mark.parametrize("threaded", [True, False])
async def test_a_reward_that_raises_is_an_error_that_names_it(error: BaseException, threaded: bool) -> None:
    def fail() -> float:
        raise error

    async def afail() -> float:
        raise error

    with pytest.raises(RewardError, match=f"reward 'broken' raised {type(error).__name__}.*odd"):
        await score(af.reward(name="broken")(fail if threaded else afail))


@pytest.mark.parametrize("threaded", [True, False])
async def test_a_reward_that_hangs_is_an_error_that_names_it(threaded: bool) -> None:
    release = threading.Event()

    def block() -> float:
        release.wait(60)
        return 1.0

    async def hang() -> float:
        await asyncio.Event().wait()
        return 1.0

    try:
        with pytest.raises(RewardError, match=r"reward 'slow' took longer than 0\.05 seconds"):
            await score(af.reward(name="slow", timeout=0.05)(block if threaded else hang))
    finally:
        release.set()


@pytest.mark.parametrize("error", [ResourceDied("gone"), ModelError("gone")])
async def test_faults_of_the_engine_go_through(error: Exception) -> None:
    @af.reward
    async def judge() -> float:
        raise error

    with pytest.raises(type(error), match="gone"):
        await score(judge)
    with pytest.raises(type(error), match="gone"):
        await score(af.weighted({well_formed: 1.0, judge: 1.0}))


async def test_a_missing_field_names_the_reward_and_what_is_there() -> None:
    with pytest.raises(ConfigError, match=r"reward 'exact'.*'answer'.*question"):
        await score(exact, question="2+2")
    assert exact.missing(["question"]) == ["answer"]
    assert well_formed.missing([]) == []


async def test_a_weighted_sum_has_each_part_in_its_metrics() -> None:
    both = af.weighted({well_formed: 0.2, exact: 0.8})
    assert await score(both, answer="four") == af.RewardResult(1.0, {"format": 1.0, "length": 4.0, "exact": 1.0})
    result = await score(both, final_response="fourteen hundred", answer="four")
    assert result == af.RewardResult(0.0, {"format": 0.0, "length": 16.0, "exact": 0.0})
    assert (await score(both, answer="five")).value == pytest.approx(0.2)
    assert both.missing([]) == ["answer"]


async def test_weighted_sums_nest_and_run_side_by_side() -> None:
    met = asyncio.Barrier(2)

    @af.reward
    async def left() -> float:
        await met.wait()
        return 1.0

    @af.reward
    async def right() -> float:
        await met.wait()
        return 3.0

    nested = af.weighted({af.weighted({left: 1, right: -1}, name="difference"): 10.0, well_formed: 1.0})
    async with asyncio.timeout(10):
        result = await score(nested)
    assert result.value == -19.0
    assert result.metrics == {"left": 1.0, "right": 3.0, "difference": -2.0, "format": 1.0, "length": 4.0}


async def test_a_failing_part_fails_the_sum() -> None:
    @af.reward
    def broken() -> float:
        raise ValueError("odd")

    with pytest.raises(RewardError, match="reward 'broken'"):
        await score(af.weighted({well_formed: 1.0, broken: 1.0}))


def starred(*args: Any) -> float:
    return 0.0


def positional(final_response: str, /) -> float:
    return 0.0


class Judge:
    def grade(self, final_response: str) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("function", "reason"),
    [(starred, r"\*args"), (positional, "positional-only"), (Judge.grade, "bound"), (3, "function")],
)
def test_a_bad_reward_is_an_error_at_decoration(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        af.reward(function)


async def test_a_bound_method_is_a_reward() -> None:
    assert (await score(af.reward(Judge().grade))).value == 1.0


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({}, "no parts"),
        ({len: 1.0}, "@reward"),
        ({exact: float("nan")}, "weight of 'exact'"),
        ({exact: "1"}, "weight of 'exact'"),
        (
            {
                exact: 1.0,
                af.reward(
                    lambda: 0.0,
                ): 1.0,
                af.reward(lambda: 1.0): 1.0,
            },
            "several parts",
        ),
    ],
    ids=["empty", "function", "nan", "text", "repeated"],
)
def test_a_bad_sum_is_an_error(parts: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        af.weighted(parts)
