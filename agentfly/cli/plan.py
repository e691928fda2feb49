"""`agentfly plan`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agentfly.agent.loading import load_agent
from agentfly.cli.pools_table import seconds
from agentfly.errors import ConfigError
from agentfly.planning.described import Times, load_times
from agentfly.planning.learning import Learned, learn_events, programs_of
from agentfly.planning.model import Outcome, Program
from agentfly.planning.scenario import JobShape, Scenario, build_scenario
from agentfly.planning.sizing import HoldUp, Sizing, find_hold_up, simulate, size_for
from agentfly.rollout.storage import read_jsonl
from agentfly.training.job import TrainingJob
from agentfly.training.loading import load_job

_LOGS = ("events.jsonl", "rollouts.events.jsonl")  # of a job's own runs
_STEPS = 5
_WORTHWHILE = 1.03  # times as fast
_ROUNDS = 20  # of rollouts at once, where there are no steps


@dataclass(frozen=True)
class PlanOptions:
    """What the command was told.

    Attributes:
        rollouts: to simulate; None takes some steps of the job.
        continuous: without training steps, as `agentfly rollout` runs them.
        events, trajectories, times: files to learn from; without any, the log that a run of the job has left.
        target: rollouts a second that are wanted.
        prices: `pool=price` of a slot for an hour.
    """

    rollouts: int | None = None
    continuous: bool = False
    events: Path | None = None
    trajectories: Path | None = None
    times: Path | None = None
    target: float | None = None
    prices: Sequence[str] = ()
    seed: int = 0
    as_json: bool = False


def run_plan(path: Path, overrides: Sequence[str], options: PlanOptions) -> None:
    """Simulate a job and print what holds it up; with a target also the sizes that reach it.

    Raises:
        ConfigError: something of the job or the files is wrong.
        AgentFlyError: the job's pools can't serve its rollouts at all.
    """
    scenario = load_scenario(load_job(path, overrides), options)
    outcome = simulate(scenario, seed=options.seed)
    hold_up = find_hold_up(scenario, outcome, seed=options.seed)
    sizing = None if options.target is None else size_for(scenario, options.target, seed=options.seed)
    if options.as_json:
        print(json.dumps(_record(scenario, outcome, hold_up, sizing)))  # noqa: T201
        return
    console = Console(soft_wrap=True)
    console.print(outcome_table(scenario, outcome, "as it is"))
    console.print(_verdict(outcome, hold_up))
    if sizing is not None:
        console.print()
        console.print(outcome_table(sizing.scenario, sizing.outcome, f"for {options.target:g} rollouts/s"))
        console.print(_advice(scenario, sizing))


def load_scenario(job: TrainingJob, options: PlanOptions) -> Scenario:
    """The job's pools and rollouts, with the times that the options name.

    Raises:
        ConfigError: one of the files is wrong, or nothing says how long rollouts take.
    """
    shape = _shape(job, continuous=options.continuous)
    prices = dict(_price(text) for text in options.prices)
    times = Times() if options.times is None else load_times(options.times)
    events = options.events
    if events is None and options.times is None and options.trajectories is None:
        events = next((path for name in _LOGS if (path := job.output / name).is_file()), None)
    learned = Learned() if events is None else learn_events(events)
    played: list[Program] = []
    if options.trajectories is not None:
        tools = [pool.name for pool in shape.tools]
        played = programs_of(read_jsonl(options.trajectories), shape.model.name, tools)
        if not played:
            raise ConfigError(f"{options.trajectories}: no rollout in it came to an end")
    return build_scenario(shape, _count(shape, options), times=times, learned=learned, played=played, prices=prices)


def _shape(job: TrainingJob, *, continuous: bool) -> JobShape:
    agent = load_agent(job.agent) if isinstance(job.agent, str) else job.agent
    claims = {spec.key: spec.limits for tool in agent.tools for spec in tool.claims}
    rollout = job.rollout
    per_step = None if continuous else rollout.tasks_per_step * rollout.group_size
    return JobShape(job.model.spec().limits, list(claims.values()), rollout.workers * rollout.concurrency, per_step)


def _count(shape: JobShape, options: PlanOptions) -> int:
    if options.rollouts is not None:
        return options.rollouts
    return _ROUNDS * shape.concurrent if shape.per_step is None else _STEPS * shape.per_step


def _price(text: str) -> tuple[str, float]:
    pool, _, number = text.rpartition("=")
    try:
        price = float(number)
    except ValueError:
        price = -1.0
    if not pool or not 0 <= price < float("inf"):
        raise ConfigError(f"--price {text!r}: write POOL=PRICE, the price of a slot for an hour")
    return pool, price


def outcome_table(scenario: Scenario, outcome: Outcome, title: str) -> Table:
    """One row for each pool."""
    table = Table("pool", title=title, box=None, padding=(0, 1, 0, 0))
    for column in ("slots", "peak", "busy", "p50/p99 wait", "wait a rollout", "slot hours", "cost"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, use in outcome.pools.items():
        table.add_row(
            name,
            str(scenario.size(name)),
            str(use.peak),
            f"{use.busy:.0%}",
            f"{seconds(use.wait_quantile(0.5))}/{seconds(use.wait_quantile(0.99))}",
            seconds(outcome.waiting(name)),
            f"{use.slot_seconds / 3600:.4g}",
            f"{_cost(scenario, outcome, name):.4g}",
        )
    return table


def _cost(scenario: Scenario, outcome: Outcome, pool: str) -> float:
    return outcome.pools[pool].slot_seconds / 3600 * scenario.pools[pool].price


def _total(scenario: Scenario, outcome: Outcome) -> float:
    return sum(_cost(scenario, outcome, pool) for pool in outcome.pools)


def _verdict(outcome: Outcome, hold_up: HoldUp | None) -> str:
    told = (
        f"{outcome.rollouts} rollouts in {seconds(outcome.seconds)}, {outcome.rate:.4g} rollouts/s; a rollout takes "
        f"{seconds(outcome.latency)}, {seconds(outcome.latency - outcome.working)} of it waiting.\n"
    )
    if hold_up is None:
        return told + "No pool holds it up: rollouts hardly wait. More of them at once would be faster."
    waits = f"{hold_up.share:.0%} of a rollout's time is spent waiting for it."
    if hold_up.doubled < _WORTHWHILE * outcome.rate:
        return told + f"{hold_up.pool} is waited for most: {waits} Twice the slots would change little."
    return told + f"{hold_up.pool} holds it up: {waits} With twice the slots: {hold_up.doubled:.4g} rollouts/s."


def _advice(scenario: Scenario, sizing: Sizing) -> str:
    best, outcome = sizing.scenario, sizing.outcome
    if not sizing.reached:
        return (
            f"Not with any size: with endless pools it is {outcome.rate:.4g} rollouts/s. "
            "Larger steps (tasks_per_step, group_size) or faster rollouts are what can help."
        )
    changes = [f"{pool}: {scenario.size(pool)} -> {best.size(pool)}" for pool in best.pools]
    at_once = best.workload.concurrent
    changes.append(f"rollouts at once: {scenario.workload.concurrent} -> {at_once}")
    cost = _total(best, outcome)
    priced = f" Cost of 1000 rollouts: {cost / outcome.rollouts * 1000:.4g}." if cost else ""
    return f"{outcome.rate:.4g} rollouts/s with {'; '.join(changes)}.{priced}"


def _record(scenario: Scenario, outcome: Outcome, hold_up: HoldUp | None, sizing: Sizing | None) -> dict[str, Any]:
    record = _outcome_record(scenario, outcome)
    record["hold_up"] = None if hold_up is None else vars(hold_up)
    if sizing is not None:
        record["target"] = {"reached": sizing.reached, **_outcome_record(sizing.scenario, sizing.outcome)}
    return record


def _outcome_record(scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
    pools = {
        name: {
            "slots": scenario.size(name),
            "peak": use.peak,
            "busy": use.busy,
            "wait_p50": use.wait_quantile(0.5),
            "wait_p99": use.wait_quantile(0.99),
            "wait_per_rollout": outcome.waiting(name),
            "slot_hours": use.slot_seconds / 3600,
            "cost": _cost(scenario, outcome, name),
        }
        for name, use in outcome.pools.items()
    }
    return {
        "rollouts": outcome.rollouts,
        "concurrent": scenario.workload.concurrent,
        "seconds": outcome.seconds,
        "rollouts_per_second": outcome.rate,
        "rollout_seconds": outcome.latency,
        "working_seconds": outcome.working,
        "cost": _total(scenario, outcome),
        "pools": pools,
    }
