"""Break a code of colours."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

from agentfly.envs.episodes import Game, Step

LETTERS = "RGBYO"
LENGTH = 3
TRIES = 8


class BreakCode(Game):
    """Mastermind with three places and five colours.

    Args:
        seed: of the code.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"code/{seed}")
        self.code = "".join(rng.choice(LETTERS) for _ in range(LENGTH))
        self._left = TRIES

    def observe(self) -> str:
        return f"Find a code of {LENGTH} letters from {LETTERS}, which may repeat. You have {self._left} tries left."

    def step(self, action: str) -> Step:
        guess = action.strip().upper()
        if len(guess) != LENGTH or not set(guess) <= set(LETTERS):
            return Step(f"A guess is {LENGTH} letters from {LETTERS}.", info={"invalid_actions": 1.0})
        self._left -= 1
        right, elsewhere = compare(guess, self.code)
        if right == LENGTH:
            return Step("That is it!", 1.0, terminated=True)
        told = f"{right} in the right place, {elsewhere} elsewhere. {self._left} tries left."
        return Step(told, terminated=self._left == 0)


def compare(guess: str, code: str) -> tuple[int, int]:
    """Letters in the right place, and others that are in the code somewhere else."""
    right = sum(left == other for left, other in zip(guess, code, strict=True))
    return right, sum((Counter(guess) & Counter(code)).values()) - right


def all_codes() -> list[str]:
    """Every code there is."""
    return ["".join(letters) for letters in product(LETTERS, repeat=LENGTH)]
