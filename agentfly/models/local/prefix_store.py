"""Keys and values of ended sequences, kept for whoever begins with the same tokens."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch

from agentfly.models.local.prefix_index import PrefixIndex
from agentfly.models.local.prefix_tree import Tokens


@dataclass(frozen=True)
class Parked:
    """An ended sequence: its session and its keys and values, `[layers, 2, kv_heads, length, head_dim]`."""

    session: str
    block: torch.Tensor

    @property
    def length(self) -> int:
        """Tokens that it holds."""
        return self.block.shape[3]

    @property
    def bytes(self) -> int:
        """Memory that it takes."""
        return self.block.numel() * self.block.element_size()


class PrefixStore:
    """Parked entries, the least recently used dropped first once they take more than `max_bytes`."""

    def __init__(self, index: PrefixIndex, max_bytes: int) -> None:
        self._index = index
        self._max_bytes = max_bytes
        self._entries: OrderedDict[int, Parked] = OrderedDict()
        self._sessions: dict[str, set[int]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry: int) -> bool:
        return entry in self._entries

    def fits(self, size: int) -> bool:
        """Whether an entry of `size` bytes can be kept at all."""
        return 0 < size <= self._max_bytes

    def park(self, entry: int, tokens: Tokens, parked: Parked) -> None:
        """Keep an entry that fits, under a new id."""
        while self.bytes + parked.bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))
        self._entries[entry] = parked
        self._sessions.setdefault(parked.session, set()).add(entry)
        self.bytes += parked.bytes
        self._index.add(entry, tokens)

    def block(self, entry: int) -> torch.Tensor:
        """Keys and values of an entry, which is now the most recently used."""
        self._entries.move_to_end(entry)
        return self._entries[entry].block

    def supersede(self, entry: int, length: int, session: str) -> None:
        """A session has copied `length` tokens of an entry into its row.

        When these are the whole of its own entry, the running sequence stands for it from now on
        and parks the longer one when it ends.
        """
        parked = self._entries.get(entry)
        if parked is not None and parked.session == session and parked.length == length:
            self._drop(entry)

    def forget(self, session: str) -> None:
        """Drop all entries of a session."""
        for entry in list(self._sessions.get(session, ())):
            self._drop(entry)

    def clear(self) -> None:
        """Drop all."""
        for entry in list(self._entries):
            self._drop(entry)

    def _drop(self, entry: int) -> None:
        parked = self._entries.pop(entry)
        self.bytes -= parked.bytes
        members = self._sessions[parked.session]
        members.discard(entry)
        if not members:
            del self._sessions[parked.session]
        self._index.drop(entry)
