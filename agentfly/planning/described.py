"""Times that a file gives: of the parts of a rollout, and of the pools."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agentfly.errors import ConfigError
from agentfly.planning.distributions import Constant, Distribution, parse_distribution
from agentfly.planning.model import NOTHING, Give, Program, Take

_ROLLOUT_KEYS = ("turns", "generating", "reward", "between_steps")
_POOL_KEYS = ("calls", "call", "scope", "start", "reset", "price")
_SCOPES = ("rollout", "call")


@dataclass(frozen=True)
class PoolTimes:
    """What a file says of a pool.

    Attributes:
        calls: of tools that use it, in a turn.
        call: seconds of one.
        scope: `rollout` keeps the lease from the first call to the rollout's end, `call` takes one for each.
        start, reset: see `PoolModel`; None says nothing.
        price: of a slot for an hour.
    """

    calls: Distribution = NOTHING
    call: Distribution = NOTHING
    scope: str = "rollout"
    start: Distribution | None = None
    reset: Distribution | None = None
    price: float | None = None


@dataclass(frozen=True)
class Times:
    """What a file says.

    Attributes:
        turns: completions of a rollout; None says nothing of rollouts.
        generating: seconds of each in the engine.
        reward: seconds.
        between_steps: seconds of learning.
    """

    turns: Distribution | None = None
    generating: Distribution = NOTHING
    reward: Distribution = NOTHING
    between_steps: Distribution = NOTHING
    pools: Mapping[str, PoolTimes] = field(default_factory=dict)

    def program(self, rng: random.Random, model: str) -> Program:
        """A rollout on the model's pool."""
        program: list[float | Take | Give] = [Take(model)]
        for _ in range(max(1, round((self.turns or Constant(1)).draw(rng)))):
            program.append(self.generating.draw(rng))
            for pool, times in self.pools.items():
                for _ in range(_whole(times.calls.draw(rng), rng)):
                    program += [Take(pool), times.call.draw(rng)]
                    if times.scope == "call":
                        program.append(Give(pool))
        program.append(self.reward.draw(rng))
        return program


def load_times(path: Path) -> Times:
    """Read a YAML (or JSON) file of times; see docs/planning.md.

    Raises:
        ConfigError: it can't be read, or something in it is wrong; naming the place.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"can't read the times {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no YAML: {str(error).splitlines()[0]}") from None
    parts = _mapping(document, str(path), ("rollout", "pools"))
    rollout = _mapping(parts.get("rollout", {}), f"{path}: rollout", _ROLLOUT_KEYS)
    given = {key: parse_distribution(value, f"{path}: rollout.{key}") for key, value in rollout.items()}
    pools = parts.get("pools", {})
    if not isinstance(pools, Mapping):
        raise ConfigError(f"{path}: pools: must be the pools' names, each with its times")
    return Times(**given, pools={str(name): _pool(value, f"{path}: pools.{name}") for name, value in pools.items()})


def _pool(value: Any, where: str) -> PoolTimes:
    given = dict(_mapping(value, where, _POOL_KEYS))
    scope, price = given.pop("scope", "rollout"), given.pop("price", None)
    if scope not in _SCOPES:
        raise ConfigError(f"{where}.scope: must be one of {', '.join(_SCOPES)}; got {scope!r}")
    if price is not None and not (isinstance(price, (int, float)) and price >= 0):
        raise ConfigError(f"{where}.price: must be a number that isn't negative; got {price!r}")
    times = {key: parse_distribution(item, f"{where}.{key}") for key, item in given.items()}
    if "call" in times and "calls" not in times:
        times["calls"] = Constant(1.0)
    return PoolTimes(**times, scope=scope, price=price)


def _mapping(value: Any, where: str, keys: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: must have keys, of: {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise ConfigError(f"{where}: unknown key {key!r}; the keys are: {', '.join(keys)}")
    return value


def _whole(number: float, rng: random.Random) -> int:
    """A whole number whose mean is the number: 0.3 is 1 three times in ten."""
    return int(number) + (rng.random() < number % 1)
