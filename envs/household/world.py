"""A house, made by a seed: places, and the things in them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# Places: how many there may be, and whether they have a door.
_PLACES: Final[Mapping[str, tuple[int, bool]]] = {
    "cabinet": (4, True),
    "drawer": (3, True),
    "countertop": (2, False),
    "shelf": (2, False),
    "table": (1, False),
    "fridge": (1, True),
    "microwave": (1, True),
    "sink": (1, False),
    "bin": (1, False),
    "desk": (1, False),
}
THINGS: Final = ("apple", "bowl", "cup", "egg", "fork", "knife", "mug", "plate", "potato", "tomato", "book", "pen")
FOOD: Final = ("apple", "egg", "potato", "tomato")
DISHES: Final = ("bowl", "cup", "fork", "knife", "mug", "plate")


@dataclass
class Thing:
    """Something that can be carried.

    Attributes:
        name: such as `mug 2`.
        states: of `clean`, `hot`, `cold`.
    """

    name: str
    states: set[str] = field(default_factory=set)

    @property
    def kind(self) -> str:
        """Such as `mug`."""
        return self.name.rpartition(" ")[0]


@dataclass
class Place:
    """Somewhere that things are.

    Attributes:
        has_door: and is shut at first.
    """

    name: str
    has_door: bool
    open: bool
    things: list[Thing] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Such as `cabinet`."""
        return self.name.rpartition(" ")[0]

    @property
    def visible(self) -> bool:
        """Whether one sees what is in it."""
        return self.open or not self.has_door


@dataclass
class World:
    """A house as it is now.

    Attributes:
        places: by name.
        here: the place that one stands before; None in the middle of the room.
        carried: in the hand.
        lamp_on: the desk lamp burns.
    """

    places: dict[str, Place]
    here: Place | None = None
    carried: Thing | None = None
    lamp_on: bool = False

    def find(self, kind: str) -> list[tuple[Place, Thing]]:
        """All things of a kind and where they are, the carried one not counted."""
        return [(place, thing) for place in self.places.values() for thing in place.things if thing.kind == kind]


def make_world(seed: int) -> World:
    """The house of a seed; two things of every kind are in it."""
    rng = random.Random(f"household/{seed}")
    places: dict[str, Place] = {}
    for kind, (most, door) in _PLACES.items():
        for number in range(1, rng.randint(max(1, most - 1), most) + 1):
            places[f"{kind} {number}"] = Place(f"{kind} {number}", door, open=False)
    holds = [place for place in places.values() if place.kind not in ("microwave", "bin", "sink")]
    for kind in THINGS:
        for number in (1, 2):
            rng.choice(holds).things.append(Thing(f"{kind} {number}"))
    return World(places)
