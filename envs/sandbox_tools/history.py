"""What was in files before a rollout's tools changed them."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from agentfly.context import Context

_MOST_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class Change:
    """One change of a file; None where there was none."""

    path: str
    before: bytes | None
    after: bytes | None


@dataclass
class History:
    """The changes of one rollout, the oldest forgotten when they are too large.

    Attributes:
        lock: the calls of a turn run side by side, changes one after the other.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changes: deque[Change] = field(default_factory=deque)
    _size: int = 0

    def add(self, change: Change) -> None:
        """Remember a change."""
        self._changes.append(change)
        self._size += _size(change)
        while self._size > _MOST_BYTES and len(self._changes) > 1:
            self._size -= _size(self._changes.popleft())

    def last(self, path: str) -> Change | None:
        """The latest change of a file that hasn't been taken back."""
        return next((change for change in reversed(self._changes) if change.path == path), None)

    def forget(self, change: Change) -> None:
        """A change was taken back."""
        self._changes.remove(change)
        self._size -= _size(change)


class Histories:
    """The history of each rollout of this process, as long as the rollout lives."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Context, History] = WeakKeyDictionary()

    def of(self, ctx: Context) -> History:
        """The rollout's own."""
        return self._of.setdefault(ctx, History())

    def __reduce__(self) -> tuple[type[Histories], tuple[()]]:
        return Histories, ()  # what travels to another process serves other rollouts there


def _size(change: Change) -> int:
    return len(change.before or b"") + len(change.after or b"")
