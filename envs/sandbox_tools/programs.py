"""Programs in texts, and what they print. Pure."""

from __future__ import annotations

import re
from typing import Any

_BLOCK = re.compile(r"^```[\w+-]*[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def program_in(response: str) -> str | None:
    """The last fenced block of code of a response; None when there is none."""
    blocks = _BLOCK.findall(response)
    return blocks[-1] if blocks else None


def same_lines(expected: str, got: str) -> bool:
    """Whether the lines are the same, white space at their ends and empty lines at the end left aside."""
    return _lines(expected) == _lines(got)


def fitting(value: Any) -> str:
    """An input or output as text: datasets hold it whole or as a list of lines.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(line, str) for line in value):
        return "\n".join(value) + "\n"
    raise TypeError(f"it is a {type(value).__name__}, not text")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
