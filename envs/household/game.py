"""One episode in a house: commands in, words out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from agentfly.envs.episodes import Game, Step
from agentfly.envs.household.goals import Goal, reached
from agentfly.envs.household.world import Place, World

HELP: Final = (
    "Commands: go to PLACE, open PLACE, close PLACE, take THING from PLACE, put THING in PLACE, "
    "clean THING with sink 1, heat THING with microwave 1, cool THING with fridge 1, use lamp, look, inventory."
)
_DEVICES: Final = {
    "clean": ("sink", "clean", ()),
    "heat": ("microwave", "hot", ("cold",)),
    "cool": ("fridge", "cold", ("hot",)),
}
_NOTHING = "Nothing happens."


class Household(Game):
    """A house and a goal; the reward of 1 comes when it is reached.

    Args:
        world: changed by what is done.
        goal: what is to be done.
    """

    def __init__(self, world: World, goal: Goal) -> None:
        self._world = world
        self._goal = goal
        self._patterns: Mapping[re.Pattern[str], Callable[..., str]] = {
            re.compile(r"go to (.+)"): self._go,
            re.compile(r"open (.+)"): self._open,
            re.compile(r"close (.+)"): self._close,
            re.compile(r"take (.+) from (.+)"): self._take,
            re.compile(r"put (.+) (?:in|on|in/on) (.+)"): self._put,
            re.compile(r"(clean|heat|cool) (.+) with (.+)"): self._change,
            re.compile(r"use (?:the )?(?:desk ?)?lamp(?: 1)?"): self._lamp,
            re.compile(r"look"): self._look,
            re.compile(r"inventory"): self._inventory,
        }

    def observe(self) -> str:
        places = ", ".join(self._world.places)
        return f"You are in a room and see: {places}.\nYour task: {self._goal.words}.\n{HELP}"

    def step(self, action: str) -> Step:
        words = " ".join(action.lower().split())
        for pattern, run in self._patterns.items():
            if match := pattern.fullmatch(words):
                seen = run(*match.groups())
                break
        else:
            return Step(f"That is no command. {HELP}", info={"invalid_actions": 1.0})
        done = reached(self._goal, self._world)
        return Step(f"{seen} The task is done." if done else seen, float(done), terminated=done)

    def _go(self, name: str) -> str:
        place = self._world.places.get(name)
        if place is None:
            return _NOTHING
        self._world.here = place
        return f"You stand before {name}. {_inside(place)}"

    def _open(self, name: str) -> str:
        place = self._before(name)
        if place is None or not place.has_door or place.open:
            return _NOTHING
        place.open = True
        return f"You open {name}. {_inside(place)}"

    def _close(self, name: str) -> str:
        place = self._before(name)
        if place is None or not place.open:
            return _NOTHING
        place.open = False
        return f"You close {name}."

    def _take(self, name: str, where: str) -> str:
        place = self._before(where)
        if place is None or not place.visible or self._world.carried is not None:
            return _NOTHING
        thing = next((thing for thing in place.things if thing.name == name), None)
        if thing is None:
            return _NOTHING
        place.things.remove(thing)
        self._world.carried = thing
        return f"You take {name} from {where}."

    def _put(self, name: str, where: str) -> str:
        place, thing = self._before(where), self._world.carried
        if place is None or not place.visible or thing is None or thing.name != name:
            return _NOTHING
        place.things.append(thing)
        self._world.carried = None
        return f"You put {name} in or on {where}."

    def _change(self, verb: str, name: str, device: str) -> str:
        kind, state, undone = _DEVICES[verb]
        place, thing = self._before(device), self._world.carried
        if place is None or place.kind != kind or thing is None or thing.name != name:
            return _NOTHING
        thing.states = (thing.states - set(undone)) | {state}
        return f"You {verb} {name} with {device}."

    def _lamp(self) -> str:
        if self._world.here is None or self._world.here.kind != "desk":
            return _NOTHING
        self._world.lamp_on = True
        return "The lamp of the desk burns."

    def _look(self) -> str:
        here = self._world.here
        return self.observe() if here is None else f"You stand before {here.name}. {_inside(here)}"

    def _inventory(self) -> str:
        thing = self._world.carried
        return (
            "You carry nothing." if thing is None else " ".join(["You carry", *sorted(thing.states), thing.name]) + "."
        )

    def _before(self, name: str) -> Place | None:
        """The place of that name if one stands before it."""
        here = self._world.here
        return here if here is not None and here.name == name else None


def _inside(place: Place) -> str:
    if not place.visible:
        return "It is closed."
    return f"There is {', '.join(thing.name for thing in place.things) or 'nothing'}."
