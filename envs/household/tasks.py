"""Tasks, and how they are solved."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentfly.envs.episodes import Move
from agentfly.envs.household.game import Household
from agentfly.envs.household.goals import draw_goal, goal_of
from agentfly.envs.household.world import Place, World, make_world

from agentfly.context import Task

_HELD_OUT = 1_000_000
_WITH = {"clean": "sink 1", "heat": "microwave 1", "cool": "fridge 1"}


def make_tasks(count: int = 200, *, held_out: bool = False, seed: int = 0) -> list[Task]:
    """Tasks with the fields `prompt`, `house` (its seed), `task`, `thing`, `target`.

    Args:
        count: how many, each in a house of its own.
        held_out: houses that training never sees.
        seed: of the first house; the others count up.
    """
    tasks = []
    for number in range(count):
        house = seed + number + (_HELD_OUT if held_out else 0)
        goal = draw_goal(random.Random(f"household/goal/{house}"), make_world(house))
        row = {"house": house, "task": goal.task, "thing": goal.thing, "target": goal.target}
        tasks.append(Task(f"household-{house}", {"prompt": f"House {house}.\n{open_house(row).observe()}", **row}))
    return tasks


def held_out_tasks() -> list[Task]:
    """Fifty tasks for evaluation."""
    return make_tasks(50, held_out=True)


def open_house(row: Mapping[str, Any]) -> Household:
    """An episode for a task's row."""
    return Household(make_world(int(row["house"])), goal_of(row))


def oracle(task: Task) -> Sequence[Move]:
    """Moves that reach the goal, by one who knows where everything is."""
    goal, world = goal_of(task), make_world(task["house"])
    commands: list[str] = []
    if goal.task == "examine":
        place, thing = world.find(goal.thing)[0]
        commands += [*_fetch(place, thing.name), "go to desk 1", "use lamp"]
    elif goal.task == "put two":
        target = _target(world, goal.target)
        for place, thing in world.find(goal.thing):
            if place is not target:
                commands += [*_fetch(place, thing.name), *_deliver(target, thing.name)]
    else:
        place, thing = world.find(goal.thing)[0]
        commands += _fetch(place, thing.name)
        if goal.task in _WITH:
            commands += [f"go to {_WITH[goal.task]}", f"{goal.task} {thing.name} with {_WITH[goal.task]}"]
        commands += _deliver(_target(world, goal.target), thing.name)
    return [Move("act", {"command": command}) for command in commands]


def _fetch(place: Place, thing: str) -> list[str]:
    return [*_reach(place), f"take {thing} from {place.name}"]


def _deliver(place: Place, thing: str) -> list[str]:
    return [*_reach(place), f"put {thing} in {place.name}"]


def _reach(place: Place) -> list[str]:
    """Go there and have it open; opening what is open does nothing."""
    return [f"go to {place.name}", *([f"open {place.name}"] if place.has_door else [])]


def _target(world: World, kind: str) -> Place:
    return next(place for place in world.places.values() if place.kind == kind)
