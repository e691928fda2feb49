"""ScienceWorld (Wang et al. 2022) in a pool: a simulator, which is a Java process, for each slot."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from agentfly.envs.episodes import Game, GameEnvironment, Step

from agentfly.errors import ConfigError
from agentfly.resources.environment import EnvironmentSpec

_SIMULATORS_OWN_LIMIT = 100_000
_FULL_SCORE = 100.0


class ScienceWorldGame(Game):
    """One variation of a task. The reward of a step is what the score rises by, as a part of 1.

    Args:
        simulator: a `scienceworld.ScienceWorldEnv`.
        task: its name, such as `boil`.
        variation: number of the variation.
        simplification: such as `easy`; empty for none.
        solved: also work out how it is solved.
    """

    def __init__(self, simulator: Any, task: str, variation: int, simplification: str, *, solved: bool = False) -> None:
        self._simulator = simulator
        simulator.load(task, variation, simplification, generateGoldPath=solved)
        self._seen, _ = simulator.reset()
        self._score = 0.0

    @property
    def solution(self) -> Sequence[str]:
        """Actions that reach the full score; only of a game that was `solved`."""
        return [str(action) for action in self._simulator.get_gold_action_sequence()]

    def observe(self) -> str:
        return f"{self._simulator.get_task_description()}\n\n{self._seen}"

    def step(self, action: str) -> Step:
        self._seen, _, done, info = self._simulator.step(" ".join(action.split()))
        score = max(0.0, float(info["score"])) / _FULL_SCORE
        gained, self._score = score - self._score, score
        return Step(str(self._seen), gained, terminated=bool(done))


class ScienceWorld(GameEnvironment):
    """A simulator for one game at a time. Rows have `task`, `variation` and `simplification`."""

    def __init__(self) -> None:
        super().__init__()
        self._simulator: Any = None

    async def start(self) -> None:
        """Start the simulator.

        Raises:
            ConfigError: it isn't installed, or there is no Java.
        """
        self._simulator = await asyncio.to_thread(make_simulator)

    def open(self, row: Mapping[str, Any]) -> ScienceWorldGame:
        return ScienceWorldGame(
            self._simulator, str(row["task"]), int(row["variation"]), str(row.get("simplification") or "")
        )

    async def stop(self) -> None:
        """End the simulator's process."""
        simulator, self._simulator = self._simulator, None
        if simulator is not None:
            await asyncio.to_thread(simulator.close)


def make_simulator() -> Any:
    """A running simulator; `close()` ends it.

    Raises:
        ConfigError: it isn't installed, or there is no Java.
    """
    if shutil.which("java") is None:
        raise ConfigError("ScienceWorld's simulator needs Java: install a Java runtime")
    try:
        from scienceworld import ScienceWorldEnv
    except ImportError as error:
        raise ConfigError(f"ScienceWorld is missing: {error}; pip install agentfly-rl[scienceworld]") from error
    return ScienceWorldEnv("", envStepLimit=_SIMULATORS_OWN_LIMIT)


def scienceworld_resource(
    *, max_steps: int = 100, slots: int = 8, max_size: int = 64, runtime_env: Mapping[str, Any] | None = None
) -> EnvironmentSpec[ScienceWorld]:
    """A pool of simulators.

    Args:
        max_steps: actions of an episode.
        slots: simulators that one host process carries.
        max_size: simulators at most.
        runtime_env: of the hosts.
    """
    return EnvironmentSpec(
        ScienceWorld,
        name="scienceworld",
        max_steps=max_steps,
        slots=slots,
        max_size=max_size,
        start_timeout=300.0,
        runtime_env=dict(runtime_env or {}),
    )
