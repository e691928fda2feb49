"""Answers that are numbers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from agentfly.envs.rewards.making import compared

from agentfly.agent import Reward
from agentfly.errors import ConfigError

_DIGITS: Final = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL: Final = rf"(?:{_DIGITS}(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER: Final = re.compile(rf"(?<![\w.])[-+\N{{MINUS SIGN}}]?(?:{_DIGITS}\s*/\s*\d+|{_DECIMAL})(?:\s*\\?%)?")
_LONGEST = 60
_LARGEST_EXPONENT = 400


def find_number(text: str) -> Fraction | None:
    """The last number in a text, exactly; None when there is none.

    Read are signs, thousands in groups, decimals, exponents, fractions (`3/4`) and percents (`5%` is 1/20).
    """
    for match in reversed(list(_NUMBER.finditer(text))):
        if (value := _read(match[0])) is not None:
            return value
    return None


def near(said: str, right: str, *, absolute: float, relative: float) -> bool:
    """Whether the last numbers of two texts differ by no more than the larger of the two tolerances."""
    ours, theirs = find_number(said), find_number(right)
    if ours is None or theirs is None:
        return False
    return abs(ours - theirs) <= max(Fraction(absolute), Fraction(relative) * abs(theirs))


def numeric(
    field: str = "answer",
    *,
    name: str = "numeric",
    absolute: float = 1e-6,
    relative: float = 0.0,
    extract: bool = True,
) -> Reward:
    """1 when the last number of the answer is that of the task's field, within a tolerance.

    Args:
        field: one answer or a list of them.
        name: of the reward.
        absolute, relative: tolerances; the larger counts.
        extract: look for the answer in tags, boxes and after `####` first.

    Raises:
        ConfigError: a tolerance is negative.
    """
    if absolute < 0 or relative < 0:
        raise ConfigError(f"reward {name!r}: tolerances can't be negative, got {absolute} and {relative}")

    def compare(said: str, right: str) -> float:
        return float(near(said, right, absolute=absolute, relative=relative))

    return compared(name, field, compare, extract=extract)


def _read(text: str) -> Fraction | None:
    plain = text.replace(",", "").replace("\N{MINUS SIGN}", "-").replace("\\", "")
    percent = plain.endswith("%")
    plain = "".join(plain.rstrip("%").split())
    exponent = re.search(r"[eE]([-+]?\d+)$", plain)
    # A number of a thousand digits is no answer, and costs time.
    if len(plain) > _LONGEST or (exponent is not None and abs(int(exponent[1])) > _LARGEST_EXPONENT):
        return None
    try:
        return Fraction(plain) / (100 if percent else 1)
    except (ValueError, ZeroDivisionError):
        return None
