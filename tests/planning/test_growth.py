"""How pools grow, keep spares and shrink under a stream of requests, simulated on the real core."""

from __future__ import annotations

import random
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly.errors import ConfigError
from agentfly.planning.distributions import Constant, Exponential
from agentfly.planning.model import PoolModel, PoolUse, Program, Take, Workload
from agentfly.planning.simulation import Simulation
from agentfly.resources import Resource, ResourceSpec
from agentfly.resources.core.history import History
from agentfly.resources.core.types import PoolLimits

Spares = int | Literal["auto"]


def stream(
    spares: Spares,
    *,
    rate: float,
    hold: float,
    start: float,
    requests: int = 1500,
    silence: float = 0.0,
    idle_ttl: float = 20.0,
    max_size: int = 256,
    seed: int = 0,
) -> PoolUse:
    """Requests at random times, `rate` of them a second; the last one comes after a silence."""
    holding, number, clock = Exponential(hold), 0, 0.0

    def program(rng: random.Random) -> Program:
        nonlocal number, clock
        number += 1
        clock += rng.expovariate(rate) + (silence if number == requests else 0.0)
        return (clock, Take("p"), holding.draw(rng))

    limits = PoolLimits("p", max_size=max_size, spares=spares, idle_ttl=idle_ttl, resets=False)
    pools = {"p": PoolModel(limits, Constant(start))}
    return Simulation(pools, Workload(program, requests, concurrent=10**9), seed=seed).run().pools["p"]


def waited(use: PoolUse) -> float:
    """Share of the leases that were waited for, the first third left aside."""
    late = use.waits[len(use.waits) // 3 :]
    return sum(wait > 0 for wait in late) / len(late)


@pytest.mark.parametrize(("rate", "hold", "start"), [(0.2, 30.0, 10.0), (0.05, 2.0, 10.0), (2.0, 3.0, 5.0)])
def test_warm_spares_by_demand_spare_the_waiting(rate: float, hold: float, start: float) -> None:
    none, auto = (stream(spares, rate=rate, hold=hold, start=start) for spares in (0, "auto"))
    assert waited(none) > 0.03, "without spares a start is waited for now and then"
    assert waited(auto) < 0.02
    assert auto.slot_seconds < 3 * none.slot_seconds, "and that doesn't cost the world"


def test_spares_go_when_the_demand_goes() -> None:
    short = stream("auto", rate=2.0, hold=3.0, start=5.0)
    long = stream("auto", rate=2.0, hold=3.0, start=5.0, silence=10_000.0)
    # Some tens of slots for a minute or two until they are given back, and nothing for the hours after that.
    assert long.slot_seconds < short.slot_seconds + 60 * 120


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rate=st.sampled_from([0.1, 1.0, 5.0]),
    hold=st.sampled_from([0.5, 5.0]),
    start=st.sampled_from([1.0, 10.0]),
    spares=st.sampled_from([0, 3, "auto"]),
    max_size=st.sampled_from([4, 64]),
)
def test_sizes_stay_in_bounds_and_do_not_flutter(
    seed: int, rate: float, hold: float, start: float, spares: Spares, max_size: int
) -> None:
    requests = 400
    if rate * hold > max_size:
        max_size = 64
    use = stream(
        spares, rate=rate, hold=hold, start=start, requests=requests, max_size=max_size, idle_ttl=30.0, seed=seed
    )
    assert len(use.waits) == requests, "everybody was served"
    assert use.peak <= max_size
    # A host that was started is kept for half a minute at least, so few are started again and again.
    lifetimes = requests / rate / 30.0
    assert use.starts <= use.peak * (1 + lifetimes)


def test_a_pool_that_knows_nothing_keeps_no_spares() -> None:
    history = History()
    history.arrivals.add(0.0)
    assert history.spares_wanted(0, 0.0, giving_back=False) == 0
    history.start.add(10.0)
    assert history.spares_wanted(0, 0.0, giving_back=False) == 0


def test_spares_follow_the_rate_and_forget_it() -> None:
    history = History()
    history.start.add(10.0)
    history.hold.add(5.0)
    for second in range(300):
        history.arrivals.add(float(second))
    # One a second, five at work: ten come and ten go while a host starts; two deviations of twenty.
    assert history.spares_wanted(5, 300.0, giving_back=False) == pytest.approx(9, abs=1)
    assert history.spares_wanted(5, 300.0, giving_back=True) > history.spares_wanted(5, 300.0, giving_back=False)
    assert history.spares_wanted(0, 300.0, giving_back=False) > 12, "all that comes has to be met"
    assert history.spares_wanted(0, 600.0, giving_back=False) == 0


class Nothing(Resource):
    """A trivial resource."""


def test_a_spec_takes_a_number_of_spares_or_auto() -> None:
    assert ResourceSpec(Nothing, spares="auto").limits.spares == "auto"
    for wrong in ("many", -1):
        with pytest.raises(ConfigError, match="'Nothing': spares is"):
            ResourceSpec(Nothing, spares=wrong)  # type: ignore[arg-type]
