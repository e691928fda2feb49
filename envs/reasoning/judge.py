"""Scores answers to tasks of reasoning-gym, where it is installed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentfly.errors import ConfigError
from agentfly.resources import Resource, ResourceSpec

_SIZE = 1_000_000


class ReasoningJudge(Resource):
    """Makes a task again from what names it, and scores an answer to it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._dataset = lru_cache(maxsize=256)(_open)

    async def start(self) -> None:
        """See that reasoning-gym is there.

        Raises:
            ConfigError: it isn't.
        """
        _package()

    def entry(self, dataset: str, seed: int, index: int, config: Mapping[str, Any]) -> dict[str, Any]:
        """The task with this number: `question`, `answer`, `metadata`."""
        with self._turn:
            return dict(self._dataset(dataset, seed, _frozen(config))[index])

    async def score(self, answer: str, dataset: str, seed: int, index: int, config: Mapping[str, Any]) -> float:
        """The task's own score of an answer, from 0 to 1; an answer that its rule chokes on gets 0."""
        return await asyncio.to_thread(self._score, answer, dataset, seed, index, config)

    def _score(self, answer: str, dataset: str, seed: int, index: int, config: Mapping[str, Any]) -> float:
        with self._turn:
            made = self._dataset(dataset, seed, _frozen(config))
            entry = made[index]
            try:
                return min(1.0, max(0.0, float(made.score_answer(answer=answer, entry=entry))))
            except Exception:  # rules of a hundred generators meet whatever a policy writes
                return 0.0


def reasoning_judge(
    *, runtime_env: Mapping[str, Any] | None = None, permits: int = 512
) -> ResourceSpec[ReasoningJudge]:
    """One shared judge.

    Args:
        runtime_env: of its host: only that needs reasoning-gym.
        permits: rollouts that it serves at once.
    """
    return ResourceSpec(
        ReasoningJudge,
        name="reasoning-gym",
        shared=True,
        slots=permits,
        max_size=permits,
        runtime_env=dict(runtime_env or {}),
    )


def _open(dataset: str, seed: int, config: tuple[tuple[str, Any], ...]) -> Any:
    try:
        return _package().create_dataset(dataset, seed=seed, **{"size": _SIZE, **dict(config)})
    except Exception as error:  # each generator checks its own configuration
        raise ConfigError(f"reasoning-gym can't make {dataset!r} with {dict(config)}: {error}") from error


def _package() -> Any:
    try:
        import reasoning_gym
    except ImportError as error:
        raise ConfigError(f"reasoning-gym is missing: {error}; pip install agentfly-rl[reasoning]") from error
    return reasoning_gym


def _frozen(config: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((key, tuple(value) if isinstance(value, list) else value) for key, value in config.items()))
