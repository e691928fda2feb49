"""Finds the first stop text in what is being sampled, token by token. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

# A character may be spread over so many tokens.
_SLACK = 4


class StopText:
    """Looks for stop texts at the end of a growing completion.

    Only its last tokens are decoded: as many as the longest stop text can reach back over.

    Args:
        stops: the texts; none is empty.
        decode: token ids to text, special tokens kept.
    """

    def __init__(self, stops: Sequence[str], decode: Decode) -> None:
        self._stops = tuple(stops)
        self._decode = decode
        self._reach = max(len(stop.encode("utf-8", "replace")) for stop in stops)
        self._characters = max(map(len, stops))

    def found(self, ids: Sequence[int], start: int = 0) -> str | None:
        """The stop text that the last token has completed.

        Args:
            ids: whose tokens from `start` on are the completion; it has been asked about every shorter one.

        Returns:
            Of several the one that begins first; None when there is none.
        """
        window = self._reach + _SLACK
        while True:
            first = max(start, len(ids) - window)
            text = self._decode(ids[first:])
            # Tokens without text, such as ids that the tokenizer doesn't know, make a window too short.
            if first == start or len(text) >= self._characters + _SLACK:
                return first_stop(text, self._stops)[1]
            window *= 2


def first_stop(text: str, stops: Sequence[str]) -> tuple[int, str | None]:
    """Where the first of the stop texts begins, and which it is; the text's length and None without one."""
    places = [(text.find(stop), stop) for stop in stops]
    there = [(place, -len(stop), stop) for place, stop in places if place >= 0]
    return (min(there)[0], min(there)[2]) if there else (len(text), None)


def shown(text: str, stop: str | None) -> str:
    """What is shown of a completion's text that a stop text has ended."""
    return text if stop is None else text.partition(stop)[0]


def held_back(text: str, stops: Sequence[str]) -> int:
    """Characters at the end of a text that may be the beginning of a stop text."""
    longest = 0
    for stop in stops:
        for size in range(min(len(stop) - 1, len(text)), longest, -1):
            if text.endswith(stop[:size]):
                longest = size
                break
    return longest
