"""One episode: ordinary code without Ray."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from agentfly.resources import environment


@dataclass(frozen=True)
class Step(environment.Step[str]):
    """What an action brought about, in words. See `agentfly.Step`; numbers of `info` become the rollout's metrics."""


class Game(ABC):
    """One episode. All that happens follows from how it was made and from the actions."""

    @abstractmethod
    def observe(self) -> str:
        """What there is to see; changes nothing."""

    @abstractmethod
    def step(self, action: str) -> Step:
        """Act. An action that makes no sense is answered in words, never by an exception."""

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """Give back what the episode holds."""
