"""Finds the answer in what a model says last."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from agentfly.errors import RewardError

_TAG: Final = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_HASHES: Final = re.compile(r"^####[ \t]*(.+?)[ \t]*$", re.MULTILINE)


def find_answer(text: str) -> str:
    r"""The last `<answer>…</answer>`, else the last `\boxed{…}`, else the last line `#### …`, else the whole text."""
    if tagged := _TAG.findall(text):
        return str(tagged[-1]).strip()
    if (boxed := _last_boxed(text)) is not None:
        return boxed.strip()
    if lines := _HASHES.findall(text):
        return str(lines[-1])
    return text.strip()


def accepted_answers(value: Any, field: str) -> list[str]:
    """The answers that a field of the task allows: one, or a list of them.

    Raises:
        RewardError: the list is empty, or the field holds something else.
    """
    single = isinstance(value, (str, int, float))
    answers = [value] if single else list(value) if isinstance(value, Iterable) and not isinstance(value, dict) else []
    if not answers:
        raise RewardError(f"the task's field {field!r} must be an answer or a list of answers, got {value!r:.80}")
    return [str(answer) for answer in answers]


def _last_boxed(text: str) -> str | None:
    """What the last complete box holds, braces in it paired."""
    start = len(text)
    while (start := text.rfind("\\boxed{", 0, start)) >= 0:
        inside = start + len("\\boxed{")
        depth = 1
        for end in range(inside, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                return text[inside:end]
    return None
