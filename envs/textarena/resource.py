"""TextArena in a pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentfly.envs.episodes import GameEnvironment
from agentfly.envs.textarena.game import TextArenaGame, any_listed

from agentfly.agent import load_object
from agentfly.errors import ConfigError
from agentfly.resources.environment import EnvironmentSpec

SINGLE_PLAYER: Final = (
    *("GuessTheNumber-v0", "TowerOfHanoi-v0", "FrozenLake-v0", "2048-v0", "Mastermind-v0", "Minesweeper-v0"),
    *("LightsOut-v0", "Sudoku-v0", "Countdown-v0", "PegJump-v0", "Bandit-v0", "Blackjack-v0"),
)
TWO_PLAYERS: Final = ("TicTacToe-v0", "ConnectFour-v0", "Nim-v0", "KuhnPoker-v0")


class TextArenaEnvironment(GameEnvironment):
    """A game for each episode; the reward is TextArena's, from -1 to 1.

    Args:
        env_id: as TextArena names it, such as `TicTacToe-v0`.
        players: in the game.
        opponent: `module:function` of what is seen and a generator; by chance among the moves listed when None.
        kwargs: for `textarena.make`.
    """

    def __init__(
        self,
        env_id: str,
        players: int = 1,
        opponent: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._id = env_id
        self._players = players
        self._opponent = any_listed if opponent is None else load_object(opponent)
        self._kwargs = dict(kwargs or {})

    async def start(self) -> None:
        """See that the game is there.

        Raises:
            ConfigError: it, or TextArena, isn't.
        """
        self._make()

    def open(self, row: Mapping[str, Any]) -> TextArenaGame:
        return TextArenaGame(self._make(), self._players, int(row["seed"]), self._opponent)

    def _make(self) -> Any:
        try:
            import textarena
        except ImportError as error:
            raise ConfigError(f"games of TextArena need it: {error}; pip install agentfly-rl[textarena]") from error
        try:
            # The raw environment tells what is new; its wrappers repeat the whole game with every turn.
            return textarena.make(f"{self._id}-raw", **self._kwargs)
        except Exception as error:  # its games raise whatever their data lacks
            raise ConfigError(f"TextArena can't make {self._id!r}: {error}") from error


def textarena_resource(
    env_id: str,
    *,
    players: int | None = None,
    opponent: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    max_steps: int | None = 100,
    slots: int = 64,
    max_size: int = 4096,
    runtime_env: Mapping[str, Any] | None = None,
) -> EnvironmentSpec[TextArenaEnvironment]:
    """A pool of a game of TextArena, which must be installed where the hosts run.

    Args:
        env_id, opponent, kwargs: see `TextArenaEnvironment`.
        max_steps: after which an episode is cut.
        players: two for those in `TWO_PLAYERS`, else one, when None.
        slots: games that one host process carries.
        max_size: games at most.
        runtime_env: of the hosts.
    """
    number = players if players is not None else 2 if env_id in TWO_PLAYERS else 1
    args = {
        "env_id": env_id,
        "players": number,
        "opponent": opponent,
        "kwargs": dict(kwargs or {}),
    }
    return EnvironmentSpec(
        TextArenaEnvironment,
        args=args,
        max_steps=max_steps,
        name=f"textarena-{env_id}",
        slots=slots,
        max_size=max_size,
        runtime_env=dict(runtime_env or {}),
    )
