"""One game from a position, against an opponent that draws its moves by a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from agentfly.envs.episodes import Game, Step

from agentfly.errors import ConfigError


class Chess(Game):
    """The agent has the move; it wins by mate, and draws count half.

    Args:
        fen: the position.
        seed: of the opponent's moves.
    """

    def __init__(self, fen: str, seed: int) -> None:
        try:
            import chess
        except ImportError as error:
            raise ConfigError("the environment chess needs a package: pip install agentfly-rl[chess]") from error
        try:
            self._board = chess.Board(fen)
        except ValueError as error:
            raise ConfigError(f"{fen!r} is no position in chess: {error}") from error
        self._side = self._board.turn
        self._rng = random.Random(seed)

    def observe(self) -> str:
        side = "White" if self._side else "Black"
        return f"{self._board}\nFEN: {self._board.fen()}\nYou are {side}. Move in UCI or SAN, such as e2e4 or Nf3."

    def step(self, action: str) -> Step:
        move = self._read(action.strip())
        if move is None:
            return Step(f"{action.strip()[:40]!r} is no legal move here.", info={"invalid_actions": 1.0})
        self._board.push(move)
        if (last := self._ended()) is not None:
            return last
        answer = self._rng.choice(sorted(self._board.legal_moves, key=lambda each: each.uci()))
        told = f"The opponent plays {self._board.san(answer)}."
        self._board.push(answer)
        return self._ended() or Step(f"{told}\n{self.observe()}")

    def _read(self, text: str) -> Any:
        for read in (self._board.parse_uci, self._board.parse_san):
            try:
                move = read(text)
            except ValueError:
                continue
            if move:  # the null move is legal in UCI
                return move
        return None

    def _ended(self) -> Step | None:
        outcome = self._board.outcome(claim_draw=True)
        if outcome is None:
            return None
        reward = 0.5 if outcome.winner is None else float(outcome.winner == self._side)
        return Step(f"{outcome.termination.name.capitalize()}: {outcome.result()}.", reward, terminated=True)


def open_game(row: Mapping[str, Any]) -> Chess:
    """A game for a task's row."""
    return Chess(str(row["fen"]), int(row["seed"]))
