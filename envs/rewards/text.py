"""Answers that are words: exact match and F1 of words, as question answering measures them."""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Final

from agentfly.envs.rewards.making import compared

from agentfly.agent import Reward

_ARTICLES: Final = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, without punctuation, articles and surplus space (SQuAD, Rajpurkar et al. 2016)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def word_f1(said: str, right: str) -> float:
    """Harmonic mean of precision and recall over the normalised words; 1 when neither has any."""
    ours, theirs = normalise(said).split(), normalise(right).split()
    if not ours or not theirs:
        return float(ours == theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs))


def exact(field: str = "answer", *, name: str = "exact", strict: bool = False, extract: bool = True) -> Reward:
    """1 when the answer is one of those in the task's field.

    Args:
        field: one answer or a list of them.
        name: of the reward.
        strict: compare characters; else as `normalise` leaves them.
        extract: look for the answer in tags, boxes and after `####`.
    """
    compare = _same if strict else _same_normalised
    return compared(name, field, compare, extract=extract)


def f1(field: str = "answer", *, name: str = "f1", extract: bool = True) -> Reward:
    """F1 of the words of the answer and of the nearest of those in the task's field."""
    return compared(name, field, word_f1, extract=extract)


def _same(said: str, right: str) -> float:
    return float(said.strip() == right.strip())


def _same_normalised(said: str, right: str) -> float:
    return float(normalise(said) == normalise(right))
