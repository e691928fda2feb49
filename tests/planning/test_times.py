"""Distributions, and the file of times."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from agentfly.errors import ConfigError
from agentfly.planning.described import load_times
from agentfly.planning.distributions import Constant, Exponential, LogNormal, Observed, parse_distribution
from agentfly.planning.model import Give, Take


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (2, Constant(2.0)),
        ({"mean": 3}, Exponential(3.0)),
        ({"median": 2, "p99": 9}, LogNormal(2.0, 9.0)),
        ([1, 2, 4.5], Observed((1.0, 2.0, 4.5))),
    ],
)
def test_each_form_is_a_distribution_of_its_mean(given: Any, meant: Any) -> None:
    distribution = parse_distribution(given, "here")
    assert distribution == meant
    rng = random.Random(0)
    draws = [distribution.draw(rng) for _ in range(20_000)]
    assert fmean(draws) == pytest.approx(distribution.mean, rel=0.05)
    assert min(draws) >= 0


def test_a_log_normal_has_its_quantiles() -> None:
    rng = random.Random(0)
    draws = sorted(LogNormal(2.0, 9.0).draw(rng) for _ in range(20_000))
    assert draws[10_000] == pytest.approx(2.0, rel=0.05)
    assert draws[19_800] == pytest.approx(9.0, rel=0.1)


@pytest.mark.parametrize(
    "given", [-1, True, "2", [], [1, -1], float("inf"), {"mean": -1}, {"mean": 1, "p99": 2}, {"median": 1}, None]
)
def test_anything_else_is_one_line_with_its_place(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^here: "):
        parse_distribution(given, "here")


def test_a_median_above_the_99th_percentile_is_refused() -> None:
    with pytest.raises(ConfigError, match="here: needs 0 < median <= p99"):
        parse_distribution({"median": 5, "p99": 2}, "here")


TIMES = """
rollout: {turns: 2, generating: 3, reward: 0.5}
pools:
  box: {call: 1.5, start: 4, reset: {mean: 0.2}, price: 0.04}
  web: {calls: 1, call: 2, scope: call}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "times.yaml"
    path.write_text(text)
    return path


def test_a_file_of_times_makes_rollouts(tmp_path: Path) -> None:
    times = load_times(written(tmp_path, TIMES))
    turn = [3.0, Take("box"), 1.5, Take("web"), 2.0, Give("web")]
    assert times.program(random.Random(0), "model") == [Take("model"), *turn, *turn, 0.5]
    box = times.pools["box"]
    assert (box.start, box.reset, box.price) == (Constant(4.0), Exponential(0.2), 0.04)


def test_parts_of_calls_are_drawn(tmp_path: Path) -> None:
    times = load_times(written(tmp_path, "rollout: {turns: 1}\npools: {box: {calls: 0.3, call: 1}}"))
    rng = random.Random(0)
    calls = fmean(Take("box") in times.program(rng, "model") for _ in range(5000))
    assert calls == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1]", "times.yaml: must have keys, of: rollout, pools"),
        ("rollouts: {}", "unknown key 'rollouts'"),
        ("rollout: {turn: 1}", "rollout: unknown key 'turn'"),
        ("rollout: {turns: fast}", "rollout.turns: must be a number"),
        ("pools: [box]", "pools: must be"),
        ("pools: {box: 3}", "pools.box: must have keys"),
        ("pools: {box: {scope: job}}", "pools.box.scope: must be one of rollout, call; got 'job'"),
        ("pools: {box: {price: -1}}", "pools.box.price: must be a number"),
        ("a: [", "is no YAML"),
    ],
)
def test_what_is_wrong_in_the_file_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_times(written(tmp_path, text))
    assert told in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't read the times"):
        load_times(tmp_path / "nothing.yaml")
