"""Guess a number by halves."""

from __future__ import annotations

import random

from agentfly.envs.episodes import Game, Step

HIGHEST = 100
TRIES = 7


class GuessNumber(Game):
    """A number from 1 to 100 in seven tries: as many as halving needs.

    Args:
        seed: of the number.
    """

    def __init__(self, seed: int) -> None:
        self.number = random.Random(f"guess/{seed}").randint(1, HIGHEST)
        self._left = TRIES

    def observe(self) -> str:
        return f"Guess a whole number from 1 to {HIGHEST}. You have {self._left} tries left."

    def step(self, action: str) -> Step:
        text = action.strip()
        if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= HIGHEST):
            return Step(f"That is no number from 1 to {HIGHEST}.", info={"invalid_actions": 1.0})
        guess = int(text)
        self._left -= 1
        if guess == self.number:
            return Step("That is it!", 1.0, terminated=True)
        hint = "higher" if guess < self.number else "lower"
        if self._left == 0:
            return Step(f"The number is {hint}. You have no tries left.", terminated=True)
        return Step(f"The number is {hint}. {self._left} tries left.")
