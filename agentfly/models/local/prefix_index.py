"""Which computed keys and values a new prompt can start from, now or in a moment."""

from __future__ import annotations

from dataclasses import dataclass

from agentfly.models.local.prefix_tree import PrefixTree, Tokens


@dataclass(frozen=True)
class Match:
    """What is there for a prompt.

    Attributes:
        length: tokens whose keys and values can be copied now.
        source: the id (of a running sequence or a parked entry) to copy from; None when `length` is 0.
        promised: tokens that a sequence now in prefill will share once it is through.
    """

    length: int
    source: int | None
    promised: int


class PrefixIndex:
    """Ids of running sequences and of parked entries, by their tokens.

    A sequence in prefill is a promise: whoever shares more with it than with anything computed had
    better wait for it and copy. So the chains of a group, or prompts with one preamble, that arrive
    together compute their common part once.
    """

    def __init__(self) -> None:
        self._ready: PrefixTree[int] = PrefixTree()
        self._promised: PrefixTree[int] = PrefixTree()
        self._tokens: dict[int, Tokens] = {}

    def promise(self, sequence: int, tokens: Tokens) -> None:
        """A sequence has begun to compute these tokens."""
        self._tokens[sequence] = tokens
        self._promised.insert(sequence, tokens)

    def fulfil(self, sequence: int) -> None:
        """It has computed them all; ignored for one that was never promised or was dropped."""
        if sequence in self._promised:
            self._promised.remove(sequence)
            self._ready.insert(sequence, self._tokens.pop(sequence))

    def add(self, entry: int, tokens: Tokens) -> None:
        """Keys and values of these tokens are parked."""
        self._ready.insert(entry, tokens)

    def drop(self, key: int) -> None:
        """A sequence or an entry is gone, or must not be used any more."""
        self._ready.remove(key)
        self._promised.remove(key)
        self._tokens.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self._ready = PrefixTree()
        self._promised = PrefixTree()
        self._tokens.clear()

    def best(self, tokens: Tokens) -> Match:
        """The longest prefixes that are computed, and that will be."""
        length, source = self._ready.match(tokens)
        return Match(length, source, self._promised.match(tokens)[0])
