"""One episode: ordinary code without Ray."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """What an action brought about.

    Attributes:
        observation: what the agent reads.
        reward: gained by this action.
        terminated: the episode has come to its own end.
        truncated: it was cut at a limit.
        info: numbers beside.
    """

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, float] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing more can be done."""
        return self.terminated or self.truncated


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
