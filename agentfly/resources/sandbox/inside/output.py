"""What comes out of a program: its beginning and its end are kept, however much there is."""

from __future__ import annotations

import os

_CHUNK = 1 << 18
# A program that has written this much, and goes on, is ended.
ENDLESS = 1 << 28
# More than any pipe holds.
_MOST_LEFT = 1 << 21


class Output:
    """The reading end of a pipe.

    Args:
        descriptor: the reading end; made non-blocking here.
        limit: bytes to keep.
    """

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor = descriptor
        self.size = 0
        self.open = True
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        os.set_blocking(descriptor, False)

    @property
    def truncated(self) -> bool:
        """Whether there was more than the limit."""
        return self.size > self._limit

    def read(self) -> int:
        """Take what is there, up to a chunk; returns how much."""
        try:
            data = os.read(self.descriptor, _CHUNK)
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

    def clear(self) -> None:
        """Forget what was read: something new begins."""
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
