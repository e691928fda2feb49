"""A space of any text, safe to vectorise."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import create_shared_memory

_SAMPLED = 40


class AnyText(spaces.Text):
    """Texts of any characters up to a length. `spaces.Text` refuses what is not in its alphabet.

    Args:
        max_length: in characters.
        seed: of `sample`.
    """

    def __init__(self, max_length: int, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length, min_length=0, charset=string.ascii_letters + string.digits + " .", seed=seed)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        length = int(self.np_random.integers(0, min(_SAMPLED, self.max_length) + 1))
        return "".join(self.np_random.choice(list(self.characters), size=length))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, AnyText) and self.max_length == other.max_length

    def __repr__(self) -> str:
        return f"AnyText({self.max_length})"

    def fit(self, text: str) -> str:
        """The text, its end cut off where it is too long."""
        return text[: self.max_length]


@create_shared_memory.register(AnyText)
def _refuse(space: AnyText, n: int = 1, ctx: Any = None) -> Any:
    # AsyncVectorEnv reads texts from its shared memory once, when there is nothing in it: they never change again.
    raise CustomSpaceError("texts can't be in shared memory: AsyncVectorEnv(..., shared_memory=False)")
