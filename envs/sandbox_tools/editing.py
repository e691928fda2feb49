"""Exact replacement in a text, and what to tell a model when it doesn't fit. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from agentfly.errors import ToolError

_CLOSE = 0.6
# Comparing is quadratic: in a longer text near misses are looked for by white space alone.
_MOST_LINES = 3000
_SHOWN_PLACES = 10
_SHOWN_LINES = 12


@dataclass(frozen=True)
class Edit:
    """A text with something replaced.

    Attributes:
        text: afterwards.
        line: of the first change, from 1.
        count: places.
    """

    text: str
    line: int
    count: int


def replace_exactly(text: str, old: str, new: str, *, everywhere: bool = False) -> Edit:
    """Replace the one place where `old` stands, or all of them.

    In a text whose lines end in CR LF, line ends of `old` and `new` are taken as such.

    Raises:
        ToolError: it stands nowhere, or in several places; in words for the model.
    """
    if not old:
        raise ToolError("the text to replace is empty; to make a file, or to replace all of it, write it anew")
    if "\r\n" in text and "\r\n" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    if old == new:
        raise ToolError("the new text is the same as the old one: nothing to do")
    count = text.count(old)
    if count == 0:
        raise ToolError(_not_found(text, old))
    if count > 1 and not everywhere:
        places = _places(text, old)
        shown = ", ".join(map(str, places[:_SHOWN_PLACES])) + (", ..." if len(places) > _SHOWN_PLACES else "")
        raise ToolError(
            f"the text stands there {count} times, at lines {shown}: give more of the lines around the one "
            "that is meant, or replace all of them"
        )
    return Edit(text.replace(old, new), text[: text.index(old)].count("\n") + 1, count)


def numbered(lines: list[str], first: int) -> str:
    """Lines with their numbers before them.

    Args:
        first: number of the first one.
    """
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, start=first))


def _places(text: str, old: str) -> list[int]:
    """Lines where it begins."""
    places, at = [], text.find(old)
    while at >= 0:
        places.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return places


def _not_found(text: str, old: str) -> str:
    lines, wanted = text.splitlines(), old.strip("\n").splitlines() or [old]
    squeezed = ["".join(line.split()) for line in wanted]
    height = len(wanted)
    for at in range(len(lines) - height + 1):
        if ["".join(line.split()) for line in lines[at : at + height]] == squeezed:
            return f"the text isn't there exactly, but with other white space at line {at + 1}:\n" + numbered(
                lines[at : at + height][:_SHOWN_LINES], at + 1
            )
    near = _closest(lines, wanted) if len(lines) <= _MOST_LINES else None
    if near is None:
        return "the text isn't there; read the file and copy the lines as they are, without their numbers"
    return f"the text isn't there; the nearest is at line {near + 1}:\n" + numbered(
        lines[near : near + height][:_SHOWN_LINES], near + 1
    )


def _closest(lines: list[str], wanted: list[str]) -> int | None:
    """Where the lines that are most like the wanted ones begin; None when nothing is like them."""
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2("\n".join(wanted)[:2000])
    best, found = _CLOSE, None
    for at in range(max(len(lines) - len(wanted) + 1, 1)):
        matcher.set_seq1("\n".join(lines[at : at + len(wanted)])[:2000])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, found = ratio, at
    return found
