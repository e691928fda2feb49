"""What an agent of MiniGrid sees, in words."""

from __future__ import annotations

from typing import Any


def describe(env: Any, observation: Any) -> str:
    """Mission, what is carried, what is in view and where; from the partial view that the environment gives."""
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX

    states = {number: name for name, number in STATE_TO_IDX.items()}
    inner = env.unwrapped
    image = observation["image"]
    width, height = image.shape[0], image.shape[1]
    here = width // 2
    lines = [f"Mission: {observation['mission']}"]
    if inner.carrying is not None:
        lines.append(f"You carry a {inner.carrying.color} {inner.carrying.type}.")
    seen = []
    for ahead in range(height):
        for column in range(width):
            kind, color, state = (int(number) for number in image[column, height - 1 - ahead])
            name = IDX_TO_OBJECT[kind]
            if name in ("unseen", "empty", "floor", "agent") or (ahead == 0 and column == here):
                continue
            if name == "wall" and column != here:
                continue
            words = name if name in ("wall", "goal", "lava") else f"{IDX_TO_COLOR[color]} {name}"
            words = f"{states[state]} {words}" if name == "door" else words
            seen.append(f"- {words}: {_place(ahead, column - here)}")
    return "\n".join([*lines, "In view:", *(seen or ["- nothing"])])


def _place(ahead: int, aside: int) -> str:
    parts = [f"{ahead} ahead"] if ahead else []
    if aside:
        parts.append(f"{abs(aside)} to the {'right' if aside > 0 else 'left'}")
    return ", ".join(parts)
