"""How an answer is written, whatever it says."""

from __future__ import annotations

import re

from agentfly.agent import Reward, reward
from agentfly.errors import ConfigError


def has_format(pattern: str, *, name: str = "format") -> Reward:
    """1 when the whole final response matches a regular expression; a dot matches line ends too.

    Raises:
        ConfigError: the pattern is none.
    """
    try:
        compiled = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise ConfigError(f"reward {name!r}: {pattern!r} is no regular expression: {error}") from error

    def score(final_response: str) -> float:
        return float(compiled.fullmatch(final_response.strip()) is not None)

    return reward(name=name)(score)


def max_length(characters: int, *, fades_until: int | None = None, name: str = "length") -> Reward:
    """1 up to a length of the final response; above it 0, or less and less until it is 0.

    Args:
        characters: that cost nothing.
        fades_until: length from which on the reward is 0, linear in between (soft overlong punishment, DAPO).
        name: of the reward.

    Raises:
        ConfigError: the lengths contradict each other.
    """
    end = characters if fades_until is None else fades_until
    if not 0 <= characters <= end:
        raise ConfigError(f"reward {name!r}: needs 0 <= characters <= fades_until, got {characters} and {fades_until}")

    def score(final_response: str) -> float:
        over = len(final_response) - characters
        return 1.0 if over <= 0 else max(0.0, 1.0 - over / (end - characters)) if end > characters else 0.0

    return reward(name=name)(score)
