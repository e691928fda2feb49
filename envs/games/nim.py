"""Take the last match."""

from __future__ import annotations

import random
import re

from agentfly.envs.episodes import Game, Step


class Nim(Game):
    """Three heaps; who takes the last match wins. The position is one that can be won, the opponent makes no mistake.

    Args:
        seed: of the heaps, and of the opponent's moves where all lose.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"nim/{seed}")
        while True:
            self.heaps = [self._rng.randint(1, 7) for _ in range(3)]
            if balance(self.heaps):
                break

    def observe(self) -> str:
        heaps = ", ".join(f"{name}: {count}" for name, count in zip("ABC", self.heaps, strict=True))
        return f"Heaps of matches: {heaps}. Take any number from one heap, such as A2. Who takes the last match wins."

    def step(self, action: str) -> Step:
        match = re.fullmatch(r"([ABC])\s*([1-7])", action.strip().upper())
        heap, count = ("ABC".index(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= count <= self.heaps[heap]:
            return Step(f"That can't be taken. {self.observe()}", info={"invalid_actions": 1.0})
        self.heaps[heap] -= count
        if not any(self.heaps):
            return Step("You take the last match and win.", 1.0, terminated=True)
        heap, count = best_move(self.heaps) or self._any_move()
        self.heaps[heap] -= count
        told = f"The opponent takes {'ABC'[heap]}{count}"
        return Step(f"{told}. {self.observe()}") if any(self.heaps) else Step(f"{told} and wins.", terminated=True)

    def _any_move(self) -> tuple[int, int]:
        heap = self._rng.choice([index for index, count in enumerate(self.heaps) if count])
        return heap, self._rng.randint(1, self.heaps[heap])


def balance(heaps: list[int]) -> int:
    """The nim-sum (Bouton 1901): 0 where who is to move loses against perfect play."""
    total = 0
    for count in heaps:
        total ^= count
    return total


def best_move(heaps: list[int]) -> tuple[int, int] | None:
    """Heap and number that leave a balance of 0; None where there is none."""
    total = balance(heaps)
    for index, count in enumerate(heaps):
        if (wanted := count ^ total) < count:
            return index, count - wanted
    return None
