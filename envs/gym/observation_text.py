"""What a Gymnasium environment shows, as text."""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

import numpy as np

_MARKED: Final = re.compile(r"\x1b\[[0-9;]*m(.*?)\x1b\[0?m", re.DOTALL)
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MOST_NUMBERS = 1000


class Describe(Protocol):
    """Words for an observation."""

    def __call__(self, env: Any, observation: Any, /) -> str: ...


def describe(env: Any, observation: Any) -> str:
    """The environment's own text rendering when it has one, else the observation itself."""
    if env.render_mode == "ansi":
        rendered = env.render()
        if isinstance(rendered, str):
            return plain(rendered)
    return as_text(observation)


def plain(text: str) -> str:
    """Terminal text without its colours: what was coloured stands in brackets."""
    return _ESCAPES.sub("", _MARKED.sub(r"[\1]", text)).strip("\n")


def as_text(observation: Any) -> str:
    """An element of any space in a few lines."""
    if isinstance(observation, dict):
        return "\n".join(f"{key}: {as_text(value)}" for key, value in observation.items())
    if isinstance(observation, tuple):
        return ", ".join(as_text(part) for part in observation)
    if isinstance(observation, np.ndarray):
        if observation.size > _MOST_NUMBERS:
            return f"(an array of shape {observation.shape}: this environment needs a text rendering)"
        return np.array2string(observation, precision=3, separator=", ", suppress_small=True)
    return str(observation)
