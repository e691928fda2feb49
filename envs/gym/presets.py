"""What is known of some Gymnasium environments: names of their actions, words for what they show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_DIRECTIONS = ("left", "down", "right", "up")
_MINIGRID_ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
_MINIGRID = "agentfly.envs.gym.minigrid:describe"
_MINIGRID_TEXT = (
    "You are in a grid world and see what lies in front of you. Actions: left and right turn you, forward moves you, "
    "pickup takes the object before you, drop puts it down, toggle opens doors and boxes, done ends."
)
_MINIGRID_IDS = (
    *("MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-8x8-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-DoorKey-8x8-v0"),
    *("MiniGrid-FourRooms-v0", "MiniGrid-MultiRoom-N2-S4-v0", "MiniGrid-Unlock-v0", "MiniGrid-LavaGapS5-v0"),
    *("BabyAI-GoToRedBallGrey-v0", "BabyAI-GoToLocal-v0", "BabyAI-GoToObj-v0", "BabyAI-PickupLoc-v0"),
    *("BabyAI-OpenDoor-v0", "BabyAI-UnlockLocal-v0", "BabyAI-PutNextLocal-v0", "BabyAI-GoTo-v0"),
)


@dataclass(frozen=True)
class Preset:
    """What `gym_resource` and `gym_agent` need not be told.

    Attributes:
        instructions: what the model is told of the environment.
        actions: names of its actions, in order.
        imports: modules that register it.
        describe: `module:function` that puts observations in words.
    """

    instructions: str
    actions: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    describe: str | None = None


_MINI = Preset(_MINIGRID_TEXT, _MINIGRID_ACTIONS, ("minigrid",), _MINIGRID)

PRESETS: Final[Mapping[str, Preset]] = {
    "FrozenLake-v1": Preset(
        "You walk over a frozen lake: S start, F ice, H hole, G goal; you are where the brackets are. Reach G.",
        _DIRECTIONS,
    ),
    "FrozenLake8x8-v1": Preset(
        "You walk over a frozen lake: S start, F ice, H hole, G goal; you are where the brackets are. Reach G.",
        _DIRECTIONS,
    ),
    "CliffWalking-v1": Preset(
        "You (x) walk in a grid. Reach T without stepping on the cliff (C).", ("up", "right", "down", "left")
    ),
    "Taxi-v4": Preset(
        "You drive the taxi (in brackets). Pick the passenger up at one letter and drop them at another.",
        ("south", "north", "east", "west", "pickup", "dropoff"),
    ),
    "Blackjack-v1": Preset(
        "You play blackjack and see your sum, the dealer's card, and whether you have a usable ace.", ("stick", "hit")
    ),
    **dict.fromkeys(_MINIGRID_IDS, _MINI),
}
