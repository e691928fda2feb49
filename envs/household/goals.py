"""What is to be done in a house, and whether it is."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agentfly.envs.household.world import DISHES, FOOD, THINGS, World

KINDS: Final = ("put", "put two", "clean", "heat", "cool", "examine")
_STATE: Final = {"clean": "clean", "heat": "hot", "cool": "cold"}
_TARGETS: Final = ("countertop", "shelf", "table", "desk", "bin", "cabinet", "drawer")


@dataclass(frozen=True)
class Goal:
    """The six kinds of tasks of ALFWorld (Shridhar et al. 2021), in this house.

    Attributes:
        task: one of `KINDS`.
        thing: kind of the thing.
        target: kind of the place; empty for `examine`.
    """

    task: str
    thing: str
    target: str = ""

    @property
    def words(self) -> str:
        """As a person would say it."""
        if self.task == "examine":
            return f"look at a {self.thing} under the lamp of the desk"
        if self.task == "put two":
            return f"put two {self.thing}s in or on one {self.target}"
        state = f"{_STATE[self.task]} " if self.task in _STATE else ""
        return f"put a {state}{self.thing} in or on a {self.target}"

    @property
    def state(self) -> str | None:
        """State that the thing must be in."""
        return _STATE.get(self.task)


def reached(goal: Goal, world: World) -> bool:
    """Whether the house is as the goal says."""
    if goal.task == "examine":
        carried, here = world.carried, world.here
        return world.lamp_on and here is not None and here.kind == "desk" and _is(carried, goal.thing)
    wanted = 2 if goal.task == "put two" else 1
    return any(
        sum(_is(thing, goal.thing) and (goal.state is None or goal.state in thing.states) for thing in place.things)
        >= wanted
        for place in world.places.values()
        if place.kind == goal.target
    )


def draw_goal(rng: random.Random, world: World) -> Goal:
    """A goal that the house doesn't satisfy already."""
    while True:
        task = rng.choice(KINDS)
        things = {"clean": DISHES + FOOD, "heat": FOOD, "cool": FOOD}.get(task, THINGS)
        goal = Goal(task, rng.choice(things), "" if task == "examine" else rng.choice(_TARGETS))
        if not reached(goal, world):
            return goal


def goal_of(row: Mapping[str, Any]) -> Goal:
    """The goal in a task's row."""
    return Goal(str(row["task"]), str(row["thing"]), str(row["target"]))


def _is(thing: Any, kind: str) -> bool:
    return thing is not None and thing.kind == kind
