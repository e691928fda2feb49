"""Answers that are a letter."""

from __future__ import annotations

import re
from typing import Final

from agentfly.envs.rewards.making import compared

from agentfly.agent import Reward

# "A", "(b)", "C.", "D) because ..."
_BARE: Final = re.compile(r"\s*[\[(]?([A-Za-z])[\])]?\s*(?:[.):\]].*)?", re.DOTALL)
_TOLD: Final = re.compile(r"\b(?:answer|option|choice)\b(?:\s+is)?\s*:?\s*[*\[(]*([A-Za-z])\b(?!')", re.IGNORECASE)
_BRACKETED: Final = re.compile(r"\(([A-Za-z])\)")


def find_letter(text: str) -> str | None:
    """The letter that a text chooses, in upper case; None when it chooses none."""
    if bare := _BARE.fullmatch(text):
        return bare[1].upper()
    for pattern in (_TOLD, _BRACKETED):
        if found := pattern.findall(text):
            return str(found[-1]).upper()
    return None


def multiple_choice(field: str = "answer", *, name: str = "choice", extract: bool = True) -> Reward:
    """1 when the answer chooses the letter that the task's field names."""
    return compared(name, field, _same_letter, extract=extract)


def _same_letter(said: str, right: str) -> float:
    letter = find_letter(said)
    return float(letter is not None and letter == find_letter(right))
