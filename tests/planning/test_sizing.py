"""The pool that is too small is named, and what is said to reach a target reaches it with little to spare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentfly.errors import ConfigError
from agentfly.planning.described import PoolTimes, Times
from agentfly.planning.distributions import Constant, Exponential
from agentfly.planning.learning import Learned
from agentfly.planning.model import PoolModel, Take, Workload
from agentfly.planning.scenario import JobShape, Scenario, build_scenario
from agentfly.planning.sizing import find_hold_up, simulate, size_for
from agentfly.resources.core.types import PoolLimits

MODEL = PoolLimits("model", slots=64, shared=True, min_size=64, max_size=64)


def scenario(boxes: int, *, concurrent: int = 40, per_step: int | None = None) -> Scenario:
    """Rollouts of 3 s, the last 2 of them in a box that is cleaned for half a second."""
    first, second = Exponential(1.0), Exponential(2.0)
    pools = {
        "model": PoolModel(MODEL),
        "box": PoolModel(PoolLimits("box", slots=4, max_size=boxes), Constant(2.0), Constant(0.5), price=0.1),
    }
    workload = Workload(
        lambda rng: (Take("model"), first.draw(rng), Take("box"), second.draw(rng)),
        2000,
        concurrent,
        per_step,
        claims=("model", "box"),
    )
    return Scenario(pools, workload)


def test_the_pool_that_is_waited_for_is_named() -> None:
    small = scenario(10)
    outcome = simulate(small)
    assert outcome.rate == pytest.approx(10 / 2.5, rel=0.05), "a box serves one rollout in 2.5 s"
    hold_up = find_hold_up(small, outcome)
    assert hold_up is not None
    assert hold_up.pool == "box"
    assert hold_up.share > 0.5
    assert hold_up.doubled == pytest.approx(2 * outcome.rate, rel=0.05)


def test_where_nobody_waits_no_pool_is_blamed() -> None:
    large = scenario(64)
    assert find_hold_up(large, simulate(large)) is None


@pytest.mark.parametrize("target", [2.0, 8.0, 30.0])
def test_sizes_reach_the_target_with_little_to_spare(target: float) -> None:
    sizing = size_for(scenario(10), target)
    assert sizing.reached
    assert simulate(sizing.scenario).rate >= 0.99 * target
    needed = target * 2.5
    assert needed * 0.95 <= sizing.scenario.size("box") <= needed * 1.3 + 2
    if target > 10:
        assert sizing.scenario.workload.concurrent >= target * 3, "so many are at work at any time"


def test_engines_are_whole() -> None:
    sizing = size_for(scenario(10), 30.0)
    assert sizing.scenario.size("model") % 64 == 0
    assert sizing.scenario.size("model") >= 90


def test_what_steps_make_impossible_is_said() -> None:
    sizing = size_for(scenario(10, per_step=20), 50.0)
    assert not sizing.reached
    assert sizing.outcome.rate < 50


BOX = PoolLimits("box", slots=4, max_size=8)
SHAPE = JobShape(MODEL, [BOX], concurrent=4, per_step=8)


def test_what_a_file_says_goes_before_what_a_log_tells() -> None:
    learned = Learned({"web": PoolLimits("web")}, {"box": Constant(7.0)}, {"box": Constant(3.0)}, [(Take("web"), 1.0)])
    times = Times(between_steps=Constant(9.0), pools={"box": PoolTimes(start=Constant(2.0), price=0.5)})
    built = build_scenario(SHAPE, 16, times=times, learned=learned, prices={"model": 2.0})
    assert built.pools["box"] == PoolModel(BOX, Constant(2.0), Constant(3.0), 0.5)
    assert built.pools["model"].price == 2.0
    assert built.workload.claims == ("web", "model", "box")
    assert (built.workload.per_step, built.workload.between_steps) == (8, Constant(9.0))
    assert simulate(built).seconds == pytest.approx(1 + 1 + 9 + 1 + 1)


def test_resources_that_are_not_reset_take_no_time_for_it() -> None:
    shape = replace(SHAPE, tools=[replace(BOX, resets=False)])
    times = Times(turns=Constant(1), pools={"box": PoolTimes(reset=Constant(5.0))})
    built = build_scenario(shape, 8, times=times, learned=Learned(), prices={})
    assert built.pools["box"].reset == Constant(0.0)


@pytest.mark.parametrize(
    ("times", "prices", "told"),
    [
        (Times(), {}, "nothing says how long rollouts take"),
        (Times(turns=Constant(1), pools={"tox": PoolTimes()}), {}, "times: the job has no pool 'tox'"),
        (Times(turns=Constant(1)), {"tox": 1.0}, "prices: the job has no pool 'tox'; the pools are: box, model"),
    ],
)
def test_what_is_missing_is_one_line(times: Times, prices: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build_scenario(SHAPE, 8, times=times, learned=Learned(), prices=prices)
