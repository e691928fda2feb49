"""An action that a model wrote, as an element of a Gymnasium space."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces


class NotAnAction(ValueError):
    """The text is no action; the message says what would be."""


def read_action(text: str, space: Space[Any], names: Sequence[str]) -> Any:
    """An element of the space.

    Args:
        text: the name of an action, its number, or JSON for spaces of several dimensions.
        space: of the environment.
        names: of the actions of a discrete space, in order; may be empty.

    Raises:
        NotAnAction: it is none.
    """
    wanted = text.strip()
    if isinstance(space, spaces.Text):
        value: Any = text
    elif isinstance(space, spaces.Discrete) and wanted.lower() in (lower := [name.lower() for name in names]):
        value = int(space.start) + lower.index(wanted.lower())
    else:
        value = _from_json(wanted, space)
    try:
        fits = space.contains(value)
    except Exception:  # spaces of others meet whatever a policy writes
        fits = False
    if not fits:
        raise NotAnAction(f"{wanted[:80]!r} is no action; {describe_space(space, names)}")
    return value


def describe_space(space: Space[Any], names: Sequence[str]) -> str:
    """What may be written, in words."""
    if names:
        return f"actions are: {', '.join(names)}"
    if isinstance(space, spaces.Discrete):
        return f"actions are whole numbers from {space.start} to {space.start + space.n - 1}"
    if isinstance(space, spaces.Text):
        return f"actions are texts of at most {space.max_length} characters"
    return f"actions are JSON of this space: {space}"


def _from_json(text: str, space: Space[Any]) -> Any:
    try:
        value = json.loads(text)
        if isinstance(value, bool):
            return None
        if isinstance(space, spaces.Discrete):
            return value if isinstance(value, int) else None
        if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
            return np.asarray(value, dtype=space.dtype)
        return space.from_jsonable([value])[0]
    except Exception:  # not JSON, or not of this shape
        return None
