"""Games to play, and how they are won."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agentfly.envs.episodes import Game, Move
from agentfly.envs.games.code import BreakCode, all_codes, compare
from agentfly.envs.games.guess import HIGHEST, GuessNumber
from agentfly.envs.games.nim import Nim, best_move

from agentfly.context import Task
from agentfly.errors import ConfigError

KINDS: Final[Mapping[str, Callable[[int], Game]]] = {"guess": GuessNumber, "code": BreakCode, "nim": Nim}
_HELD_OUT = 1_000_000


def make_tasks(count: int = 150, *, held_out: bool = False, seed: int = 0) -> list[Task]:
    """Tasks with the fields `prompt`, `game` and `seed`, the kinds by turns.

    Args:
        count: how many.
        held_out: other seeds.
        seed: of the first; the others count up.
    """
    tasks = []
    for number in range(count):
        kind = list(KINDS)[number % len(KINDS)]
        row = {"game": kind, "seed": seed + number + (_HELD_OUT if held_out else 0)}
        prompt = f"Game {row['seed']}. {open_game(row).observe()}"
        tasks.append(Task(f"{kind}-{row['seed']}", {"prompt": prompt, **row}))
    return tasks


def held_out_tasks() -> list[Task]:
    """Thirty tasks for evaluation."""
    return make_tasks(30, held_out=True)


def open_game(row: Mapping[str, Any]) -> Game:
    """A game for a task's row.

    Raises:
        ConfigError: there is no such game.
    """
    if row["game"] not in KINDS:
        raise ConfigError(f"there is no game {row['game']!r}; the games are: {', '.join(KINDS)}")
    return KINDS[row["game"]](int(row["seed"]))


def oracle(task: Task) -> Sequence[Move]:
    """Moves that win, found by playing without looking at what is hidden."""
    game = open_game(task)
    moves = {"guess": _halve, "code": _deduce, "nim": _balance}[task["game"]](game)
    return [Move("play", {"move": move}) for move in moves]


def _halve(game: Any) -> list[str]:
    low, high = 1, HIGHEST
    moves = []
    while True:
        middle = (low + high) // 2
        moves.append(str(middle))
        step = game.step(moves[-1])
        if step.over:
            return moves
        low, high = (middle + 1, high) if "higher" in step.observation else (low, middle - 1)


def _deduce(game: Any) -> list[str]:
    """Always a code that fits all answers so far."""
    possible, moves = all_codes(), []
    while True:
        guess = possible[len(possible) // 2]
        moves.append(guess)
        step = game.step(guess)
        if step.over:
            return moves
        words = step.observation.split()
        answer = (int(words[0]), int(words[5]))
        possible = [code for code in possible if compare(guess, code) == answer]


def _balance(game: Any) -> list[str]:
    moves = []
    while (move := best_move(game.heaps)) is not None:
        moves.append(f"{'ABC'[move[0]]}{move[1]}")
        if game.step(moves[-1]).over:
            break
    return moves
