"""Positions with a mate in one, from games that were drawn by chance."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from agentfly.envs.chess.game import open_game
from agentfly.envs.episodes import Move

from agentfly.context import Task


def make_tasks(count: int = 150, *, held_out: bool = False, seed: int = 0) -> list[Task]:
    """Tasks with the fields `prompt`, `fen`, `seed`, and `mate`, which no model is shown.

    Args:
        count: how many at most; a tenth of the 200 positions is held out.
        held_out: positions that training never sees.
        seed: of their order.

    Raises:
        ConfigError: the package chess isn't installed.
    """
    there = [position for index, position in enumerate(_positions()) if (index % 10 == 0) == held_out]
    random.Random(f"chess/{seed}").shuffle(there)
    tasks = []
    for number, (fen, mate) in enumerate(there[:count]):
        row = {"fen": fen, "seed": seed + number, "mate": mate}
        prompt = f"Mate the opponent, in one move if you can.\n{open_game(row).observe()}"
        tasks.append(Task(f"chess-{fen}", {"prompt": prompt, **row}))
    return tasks


def held_out_tasks() -> list[Task]:
    """Twenty tasks for evaluation."""
    return make_tasks(held_out=True)


def oracle(task: Task) -> Sequence[Move]:
    """The mate."""
    return [Move("move", {"move": task["mate"]})]


@cache
def _positions() -> tuple[tuple[str, str], ...]:
    """Positions in FEN and a move that mates."""
    lines = files("agentfly.envs.chess").joinpath("positions.txt").read_text(encoding="utf-8").splitlines()
    return tuple((fen, mate) for fen, _, mate in (line.partition(";") for line in lines))
