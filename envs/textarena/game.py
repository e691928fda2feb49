"""One game of TextArena, in which the agent is player 0."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from agentfly.envs.episodes import Game, Step

_CHOICE: Final = re.compile(r"'(\[[^\]']+\])'")
_MOST_TURNS_OF_OTHERS = 50

T = TypeVar("T")
# What the opponent sees, and its generator -> its action.
Opponent = Callable[[str, random.Random], str]


def any_listed(observation: str, rng: random.Random) -> str:
    """One of the moves that the game lists last, by chance."""
    line = next((line for line in reversed(observation.splitlines()) if _CHOICE.search(line)), "")
    return str(rng.choice(_CHOICE.findall(line) or ["[pass]"]))


class TextArenaGame(Game):
    """TextArena draws from Python's global generator: its state is kept for each game and put in place meanwhile.

    Args:
        env: made by `textarena.make`, not yet reset.
        players: in the game.
        seed: of the game and of the opponent.
        opponent: plays all but player 0.
    """

    def __init__(self, env: Any, players: int, seed: int, opponent: Opponent) -> None:
        self._env = env
        self._opponent = opponent
        self._rng = random.Random(f"textarena/{seed}")
        self._drawn: Any = random.Random(seed).getstate()
        self._seen = ""
        self._with_own_draws(lambda: self._begin(players, seed))

    def observe(self) -> str:
        return self._seen

    def step(self, action: str) -> Step:
        return self._with_own_draws(lambda: self._step(action.strip()))

    def _begin(self, players: int, seed: int) -> None:
        self._env.reset(num_players=players, seed=seed)
        self._others()
        self._seen = self._read()

    def _step(self, action: str) -> Step:
        done, _ = self._env.step(action if "[" in action else f"[{action}]")
        if not done:
            done = self._others()
        if done:
            rewards, _ = self._env.close()
            return Step("The game is over.", _number((rewards or {}).get(0)), terminated=True)
        self._seen = self._read()
        return Step(self._seen)

    def _others(self) -> bool:
        """Let the others move until it is player 0's turn; whether the game has ended."""
        for _ in range(_MOST_TURNS_OF_OTHERS):
            if self._env.state.current_player_id == 0:
                return False
            _, observation = self._env.get_observation()
            done, _ = self._env.step(self._opponent(_text(observation), self._rng))
            if done:
                return True
        return False

    def _read(self) -> str:
        _, observation = self._env.get_observation()
        return _text(observation)

    def _with_own_draws(self, work: Callable[[], T]) -> T:
        others = random.getstate()
        random.setstate(self._drawn)
        try:
            return work()
        finally:
            self._drawn = random.getstate()
            random.setstate(others)


def _number(reward: Any) -> float:
    """A reward; some games put the reason of a loss in its place."""
    return float(reward) if isinstance(reward, (int, float)) else 0.0


def _text(observation: Any) -> str:
    """Messages of a raw environment, own actions left out."""
    if isinstance(observation, str):
        return observation
    return "\n".join(str(message) for sender, message, _ in observation if sender != 0).strip()
