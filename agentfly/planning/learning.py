"""Learns a job's times from what a real run has written: its event log and its trajectories."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from agentfly.errors import ConfigError
from agentfly.planning.distributions import Distribution, Observed
from agentfly.planning.model import Give, Program, Take
from agentfly.resources.core.types import PoolLimits
from agentfly.rollout.trajectory import Trajectory

_SHORT = 0.02  # seconds before a rollout's last lease ends in which others may end with it


@dataclass
class Learned:
    """What an event log tells.

    Attributes:
        limits: of each pool, by name.
        starts, resets: seconds, by pool.
        programs: one for each rollout that was seen.
    """

    limits: dict[str, PoolLimits] = field(default_factory=dict)
    starts: dict[str, Distribution] = field(default_factory=dict)
    resets: dict[str, Distribution] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)

    def program(self, rng: random.Random) -> Program:
        """That of one of the rollouts that were seen."""
        return rng.choice(self.programs)


class _Seen(NamedTuple):
    """A lease in a log: when it was asked for, granted, and ended."""

    pool: str
    asked: float
    granted: float
    ended: float


def learn_events(path: Path) -> Learned:
    """Read an event log.

    Raises:
        ConfigError: the file can't be read, a line of it is bad, or no rollout's lease is in it.
    """
    learned = Learned()
    seconds: dict[str, dict[str, list[float]]] = {"start": defaultdict(list), "reset": defaultdict(list)}
    rollouts: dict[tuple[str, str], list[_Seen]] = defaultdict(list)
    for where, event in _lines(path):
        try:
            kind, pool = event["event"], event["pool"]
            if kind == "pool":
                learned.limits[pool] = _limits(event["limits"])
            elif kind == "lease" and event["holder"] and event["how"] == "released":
                ended = float(event["time"])
                granted = ended - float(event["held"])
                seen = _Seen(pool, granted - float(event["waited"]), granted, ended)
                rollouts[event["client"], event["holder"]].append(seen)
            elif kind == "start" or (kind == "reset" and event["ok"] and not event["renewed"]):
                seconds[kind][pool].append(float(event["seconds"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{where} is no event of a job: {type(error).__name__}: {error}") from None
    learned.starts = {pool: Observed(values) for pool, values in seconds["start"].items()}
    learned.resets = {pool: Observed(values) for pool, values in seconds["reset"].items()}
    learned.programs = [_program(leases) for leases in rollouts.values()]
    if not learned.programs:
        raise ConfigError(f"{path}: no rollout has ended in this log")
    return learned


def programs_of(trajectories: Iterable[Trajectory], model: str, tools: Sequence[str]) -> list[Program]:
    """Rollouts as their trajectories tell them: all generating but the first turn's lies in the time of the tools.

    Args:
        model: the pool of engines.
        tools: pools that the tools lease with their first call.
    """
    programs: list[Program] = []
    for trajectory in trajectories:
        timing = trajectory.timing
        if trajectory.error is not None or not trajectory.turns:
            continue
        first = timing.generating / trajectory.turns
        rest = max(0.0, timing.total - timing.waiting - first)
        taken = [Take(pool) for pool in tools] if trajectory.tool_calls else []
        programs.append((Take(model), first, *taken, rest))
    return programs


def _lines(path: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    return  # still being written, or cut by a kill
                try:
                    event = json.loads(line)
                except ValueError:
                    raise ConfigError(f"{path}, line {number} is no JSON") from None
                yield f"{path}, line {number}", event
    except OSError as error:
        raise ConfigError(f"can't read the event log {path}: {error.strerror}") from None


def _limits(values: Mapping[str, Any]) -> PoolLimits:
    known = {item.name for item in fields(PoolLimits)}
    return PoolLimits(**{name: value for name, value in values.items() if name in known})


def _program(leases: Sequence[_Seen]) -> Program:
    """The rollout's time line with its waiting cut out."""
    last = max(lease.ended for lease in leases)
    moments: list[tuple[float, int, Take | Give]] = []
    for lease in leases:
        # Where nothing was held nobody knows what the rollout did; it began with its first request.
        moments.append((lease.asked, 0, Take(lease.pool)))
        if last - lease.ended > _SHORT:
            moments.append((lease.ended, 1, Give(lease.pool)))
    moments.sort(key=lambda moment: moment[:2])
    waits = _merged([(lease.asked, lease.granted) for lease in leases])
    program: list[float | Take | Give] = []
    before = moments[0][0]
    for moment, _, step in [*moments, (last, 2, None)]:
        work = moment - before - sum(max(0.0, min(moment, end) - max(before, begin)) for begin, end in waits)
        if work > 0:
            program.append(work)
        if step is not None:
            program.append(step)
        before = moment
    return tuple(program)


def _merged(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans that overlap as one: those who wait for two things at once wait once."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
