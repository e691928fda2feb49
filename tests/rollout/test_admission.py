"""Admission in simulated time: flat times under any load, throughput kept, nobody starved."""

from __future__ import annotations

import math
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout.admission_world import Load, World

from agentfly.rollout.admission import Admission, PoolView

LOADS = [
    Load(8, think=1, use=3),
    Load(8, think=1, use=1, calls=5, keeps=False),
    Load(4, think=0.2, use=5, calls=3),
    Load(64, think=0.5, use=5),
    Load(32, think=1, use=3, grow=0.5),
]


def play(load: Load, concurrency: int, *, admitted: bool, rollouts: int | None = None, seed: int = 0) -> World:
    admission = Admission({"p": load.slots}) if admitted else None
    world = World(load, rollouts or max(400, load.slots * 40), concurrency, admission, seed)
    world.run()
    return world


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_a_rollouts_time_stays_flat_as_the_load_grows_tenfold(load: Load) -> None:
    few, many = (play(load, load.slots * factor, admitted=True) for factor in (3, 30))
    free = play(load, load.slots * 30, admitted=False)
    assert mean(many.times) < 1.15 * mean(few.times)
    assert mean(free.times) > 5 * mean(many.times)
    assert many.rate > 0.9 * free.rate


@settings(max_examples=25, deadline=None)
@given(
    slots=st.integers(1, 20),
    think=st.floats(0.1, 5),
    use=st.floats(0.1, 5),
    calls=st.integers(0, 4),
    keeps=st.booleans(),
    uses=st.floats(0, 1),
    grow=st.sampled_from((0.0, 0.3)),
    concurrency=st.integers(1, 200),
    seed=st.integers(0, 100),
)
def test_all_rollouts_end_and_little_throughput_is_lost(
    slots: int,
    think: float,
    use: float,
    calls: int,
    keeps: bool,
    uses: float,
    grow: float,
    concurrency: int,
    seed: int,
) -> None:
    load = Load(slots, think, use, calls, keeps, uses, grow)
    admitted, free = (play(load, concurrency, admitted=yes, rollouts=600, seed=seed) for yes in (True, False))
    assert len(admitted.times) == 600
    assert admitted.rate > 0.6 * free.rate


def test_who_claims_nothing_is_let_in() -> None:
    admission = Admission({})
    assert not admission.needed
    assert admission.room(10_000) is None


def test_a_pool_that_nobody_asks_for_comes_to_hold_nobody_up() -> None:
    admission = Admission({"p": 4})
    assert admission.room(0) == 6
    for second in range(200):
        admission.observe(6, {}, float(second))
        admission.ended(1, 6)
    limit = admission.limit
    assert limit > 1e6


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 9))
def test_one_may_always_be_under_way(leased: int, ready: int, waiting: int, size: int, ended: int) -> None:
    admission = Admission({"p": 3, "q": 7})
    view = PoolView(leased, ready, waiting, size)
    for second in range(5):
        admission.observe(second, {"p": view, "q": view}, float(second))
        admission.ended(ended, second)
        room = admission.room(0)
        assert room is None or room >= 1
        assert not math.isnan(admission.limit)


def test_a_pool_that_is_smaller_than_it_may_become_counts_as_it_is_while_somebody_waits() -> None:
    admission = Admission({"p": 100})
    assert admission.room(0) == 126
    admission.observe(10, {"p": PoolView(leased=4, ready=4, waiting=6, max_size=100)}, 0.0)
    assert admission.room(10) == 0
    admission.observe(4, {"p": PoolView(leased=4, ready=4, waiting=0, max_size=100)}, 1.0)
    assert admission.room(4) == 122


def test_the_scarcest_pool_counts() -> None:
    assert Admission({"p": 100, "q": 4}).room(0) == 6
