"""What comes out of a program: its beginning and its end are kept, however much there is."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

_CHUNK = 1 << 18
# A program that has written this much, and goes on, is ended.
ENDLESS = 1 << 28
# More than any pipe holds.
_MOST_LEFT = 1 << 21


class Pipe(ABC):
    """The reading end of a pipe.

    Args:
        descriptor: the reading end; made non-blocking here.
        chunk: bytes that one reading takes at most.
    """

    def __init__(self, descriptor: int, chunk: int) -> None:
        self.descriptor = descriptor
        self.open = True
        self._chunk = chunk
        os.set_blocking(descriptor, False)

    def read(self) -> int:
        """Take what is there, up to a chunk; returns how much."""
        try:
            data = os.read(self.descriptor, self._chunk)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        self.open = bool(data)
        self._keep(data)
        return len(data)

    def drain(self) -> None:
        """Take what a program left that has ended. One in the background may go on writing: so only that much."""
        left = _MOST_LEFT
        while self.open and left > 0 and (got := self.read()):
            left -= got

    @abstractmethod
    def clear(self) -> None:
        """Forget what was read: something new begins."""

    @abstractmethod
    def _keep(self, data: bytes) -> None:
        """Take in what was read."""


class Output(Pipe):
    """All of it that is to be kept.

    Args:
        limit: bytes to keep.
    """

    def __init__(self, descriptor: int, limit: int) -> None:
        super().__init__(descriptor, _CHUNK)
        self.size = 0
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()

    @property
    def truncated(self) -> bool:
        """Whether there was more than the limit."""
        return self.size > self._limit

    def clear(self) -> None:
        self.size = 0
        self._head, self._tail = bytearray(), bytearray()

    def content(self) -> bytes:
        """What was kept, with a line in the middle that says how much is missing."""
        if not self.truncated:
            return bytes(self._head + self._tail)
        head, tail = bytes(self._head), bytes(self._tail[-(self._limit - self._limit // 2) :])
        missing = self.size - len(head) - len(tail)
        return b"%s\n[... %d bytes left out ...]\n%s" % (head, missing, tail)

    def _keep(self, data: bytes) -> None:
        self.size += len(data)
        room = self._limit // 2 - len(self._head)
        self._head += data[:room]
        self._tail += data[max(room, 0) :]
        if len(self._tail) > self._limit + _CHUNK:
            del self._tail[: -self._limit]


class Pieces(Pipe):
    """What is fetched piece by piece.

    Args:
        limit: bytes that wait at most.
        hold: whoever writes more than that waits for the reader; otherwise the oldest is left out.
    """

    def __init__(self, descriptor: int, limit: int, hold: bool) -> None:
        super().__init__(descriptor, min(_CHUNK, max(limit, 1)))
        self.left_out = 0
        self._limit = limit
        self._hold = hold
        self._waiting = bytearray()

    @property
    def waiting(self) -> bool:
        """Whether there is something to fetch: a part of a character is nothing."""
        return whole_characters(self._waiting) > 0

    @property
    def full(self) -> bool:
        """Whether nothing is to be read before something has been fetched."""
        return self._hold and len(self._waiting) >= self._limit

    def clear(self) -> None:
        self._waiting.clear()

    def _keep(self, data: bytes) -> None:
        self._waiting += data
        if not self._hold and len(self._waiting) > self._limit:
            self.left_out += len(self._waiting) - self._limit
            del self._waiting[: -self._limit]

    def take(self, last: bool) -> bytes:
        """Fetch what waits; a character that isn't there as a whole waits for its rest, unless this is the last."""
        end = len(self._waiting) if last else whole_characters(self._waiting)
        piece = bytes(self._waiting[:end])
        del self._waiting[:end]
        return piece


def whole_characters(data: bytearray) -> int:
    """The length without a UTF-8 character at the end whose rest is missing."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # begins a character of so many bytes
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if size > back else len(data)
        if byte < 0x80:
            break
    return len(data)
