"""How long something takes: what a time is drawn from."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Any, Protocol

from agentfly.errors import ConfigError

_Z99 = NormalDist().inv_cdf(0.99)
_FORMS = "a number, {mean: ...}, {median: ..., p99: ...} or a list of observed values"


class Distribution(Protocol):
    """Of values that aren't negative."""

    @property
    def mean(self) -> float:
        """The expected value."""
        ...

    def draw(self, rng: random.Random) -> float:
        """One value."""
        ...


@dataclass(frozen=True)
class Constant:
    """Always the same."""

    value: float

    @property
    def mean(self) -> float:
        """The value."""
        return self.value

    def draw(self, rng: random.Random) -> float:
        """The value."""
        return self.value


@dataclass(frozen=True)
class Exponential:
    """Memoryless, by its mean."""

    mean: float

    def draw(self, rng: random.Random) -> float:
        """One value."""
        return rng.expovariate(1.0 / self.mean) if self.mean else 0.0


@dataclass(frozen=True)
class LogNormal:
    """Of latencies that have a tail, by their median and 99th percentile."""

    median: float
    p99: float

    @property
    def mean(self) -> float:
        """The expected value, above the median."""
        return self.median * math.exp(self._sigma**2 / 2)

    def draw(self, rng: random.Random) -> float:
        """One value."""
        return self.median * math.exp(rng.gauss(0.0, self._sigma))

    @property
    def _sigma(self) -> float:
        return math.log(self.p99 / self.median) / _Z99


@dataclass(frozen=True)
class Observed:
    """One of the values that were seen, each as likely as the others."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        """Of the values."""
        return fmean(self.values)

    def draw(self, rng: random.Random) -> float:
        """One value."""
        return rng.choice(self.values)


def parse_distribution(value: Any, where: str) -> Distribution:
    """A distribution as YAML has it: 2.5, {mean: 2.5} (exponential), {median: 2, p99: 9} (log-normal), [1, 2, 4].

    Raises:
        ConfigError: it is none of these; naming the place.
    """
    if _is_time(value):
        return Constant(float(value))
    if isinstance(value, Sequence) and not isinstance(value, str) and value and all(map(_is_time, value)):
        return Observed(tuple(float(item) for item in value))
    if isinstance(value, Mapping) and value.keys() == {"mean"} and _is_time(value["mean"]):
        return Exponential(float(value["mean"]))
    if isinstance(value, Mapping) and value.keys() == {"median", "p99"} and all(map(_is_time, value.values())):
        median, p99 = float(value["median"]), float(value["p99"])
        if 0 < median <= p99:
            return LogNormal(median, p99)
        raise ConfigError(f"{where}: needs 0 < median <= p99, got {median:g} and {p99:g}")
    raise ConfigError(f"{where}: must be {_FORMS}; got {value!r:.80}")


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
