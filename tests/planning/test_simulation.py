"""The simulator against cases whose answer is known, and its own laws."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly.errors import AgentFlyError
from agentfly.planning.distributions import Constant, Exponential
from agentfly.planning.model import Give, Outcome, PoolModel, Program, Take, Workload
from agentfly.planning.simulation import Simulation
from agentfly.resources.core.types import PoolLimits


def run(
    program: Program,
    rollouts: int,
    concurrent: int = 1000,
    *,
    seed: int = 0,
    claims: tuple[str, ...] = (),
    per_step: int | None = None,
    between_steps: float = 0.0,
    **pools: PoolModel,
) -> Outcome:
    workload = Workload(lambda _: program, rollouts, concurrent, per_step, Constant(between_steps), claims)
    return Simulation(pools, workload, seed=seed).run()


def pool(size: int, *, slots: int = 1, start: float = 0.0, reset: float = 0.0, **limits: int) -> PoolModel:
    return PoolModel(PoolLimits("pool", slots=slots, max_size=size, **limits), Constant(start), Constant(reset))


def test_who_waits_goes_in_turns() -> None:
    outcome = run([Take("p"), 10.0], 6, p=pool(2))
    assert outcome.seconds == pytest.approx(30.0)
    assert sorted(outcome.pools["p"].waits) == pytest.approx([0, 0, 10, 10, 20, 20])
    assert outcome.working == pytest.approx(10.0)
    assert outcome.latency == pytest.approx(20.0)
    assert outcome.pools["p"].busy == pytest.approx(1.0)


def test_starts_and_resets_take_their_time() -> None:
    outcome = run([Take("p"), 10.0], 2, p=pool(1, start=3.0, reset=2.0))
    assert outcome.seconds == pytest.approx(3 + 10 + 2 + 10)
    assert (outcome.pools["p"].starts, outcome.pools["p"].peak) == (1, 1)
    assert outcome.pools["p"].slot_seconds == pytest.approx(25.0)


def test_a_pool_grows_by_whole_hosts() -> None:
    outcome = run([Take("p"), 10.0], 5, p=pool(64, slots=4, start=1.0))
    assert outcome.seconds == pytest.approx(11.0)
    assert (outcome.pools["p"].starts, outcome.pools["p"].peak) == (2, 8)


def test_a_lease_is_kept_to_the_end_or_given_back() -> None:
    kept = run([Take("p"), 1.0, Take("p"), 5.0], 2, p=pool(1))
    given_back = run([Take("p"), 1.0, Give("p"), 5.0], 2, p=pool(1))
    assert kept.seconds == pytest.approx(12.0)
    assert given_back.seconds == pytest.approx(7.0)


def test_no_more_rollouts_run_at_once_than_may() -> None:
    outcome = run([Take("p"), 10.0], 6, concurrent=2, p=pool(64))
    assert outcome.seconds == pytest.approx(30.0)
    assert outcome.pools["p"].peak == 2
    assert max(outcome.pools["p"].waits) == 0


def test_a_step_begins_when_the_last_was_learned_from() -> None:
    outcome = run([Take("p"), 10.0], 6, per_step=2, between_steps=5.0, p=pool(64))
    assert outcome.seconds == pytest.approx(10 + 5 + 10 + 5 + 10)
    assert outcome.rate == pytest.approx(6 / 40)


def test_rollouts_that_take_two_things_in_opposite_orders_finish() -> None:
    programs: list[Program] = [[Take("p"), 1.0, Take("q"), 1.0], [Take("q"), 1.0, Take("p"), 1.0]]
    workload = Workload(lambda rng: rng.choice(programs), 200, 50, claims=("p", "q"))
    outcome = Simulation({"p": pool(1), "q": pool(1)}, workload).run()
    assert outcome.seconds <= 400 + 1e-6


def test_what_can_never_be_served_is_an_error() -> None:
    with pytest.raises(AgentFlyError, match="for ever for: p"):
        run([Take("p"), 1.0], 1, p=PoolModel(PoolLimits("p", max_size=0)))


def test_a_full_queue_is_an_error() -> None:
    with pytest.raises(AgentFlyError, match="queue of pool 'pool' is full"):
        run([Take("p"), 1.0], 10, p=pool(1, max_waiting=3))


def test_the_same_seed_gives_the_same_run() -> None:
    def once(seed: int) -> float:
        generating = Exponential(3.0)
        workload = Workload(lambda rng: [Take("p"), generating.draw(rng)], 100, 10)
        return Simulation({"p": pool(4, reset=0.1)}, workload, seed=seed).run().seconds

    assert once(1) == once(1) != once(2)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 6),
    slots=st.integers(1, 3),
    concurrent=st.integers(1, 12),
    reset=st.sampled_from([0.0, 0.5]),
    start=st.sampled_from([0.0, 4.0]),
    shared=st.booleans(),
)
def test_its_books_balance(
    seed: int, size: int, slots: int, concurrent: int, reset: float, start: float, shared: bool
) -> None:
    """Every second of every rollout and every slot is accounted for."""
    work = Exponential(2.0)
    drawn: list[float] = []

    def program(rng: random.Random) -> Program:
        seconds = [work.draw(rng), work.draw(rng)]
        drawn.append(sum(seconds))
        return [seconds[0], Take("p"), seconds[1]]

    limits = PoolLimits("p", slots=slots, max_size=size, shared=shared)
    model = PoolModel(limits, Constant(start), Constant(reset))
    outcome = Simulation({"p": model}, Workload(program, 60, concurrent), seed=seed).run()
    use = outcome.pools["p"]
    assert len(use.waits) == len(drawn) == 60
    assert outcome.working * 60 == pytest.approx(sum(drawn))
    assert (outcome.latency - outcome.working) * 60 == pytest.approx(sum(use.waits))
    assert outcome.latency * 60 <= concurrent * outcome.seconds + 1e-6
    assert use.held + use.cleaned <= use.slot_seconds + reset * size + 1e-6
    assert use.peak <= size
    assert outcome.seconds >= sum(drawn) / concurrent - 1e-6
