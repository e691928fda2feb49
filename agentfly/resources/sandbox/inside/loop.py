"""A small event loop: descriptors that are waited for, things that are due."""

from __future__ import annotations

import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

READ, WRITE = select.POLLIN, select.POLLOUT


class Loop:
    """Calls back what is ready and what is due, one at a time."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._ready: dict[int, Callable[[], None]] = {}
        self._due: dict[object, tuple[float, Callable[[], None]]] = {}

    def watch(self, descriptor: int, callback: Callable[[], None], events: int = READ) -> None:
        """Call back whenever the descriptor is ready, or closed at its other end."""
        self._ready[descriptor] = callback
        self._poll.register(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Watch it no longer."""
        if self._ready.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def later(self, key: object, seconds: float, callback: Callable[[], None]) -> None:
        """Call back once, after a while; takes the place of what was due under the same key."""
        self._due[key] = (time.monotonic() + seconds, callback)

    def never(self, key: object) -> None:
        """Drop what was due under this key."""
        self._due.pop(key, None)

    def turn(self) -> None:
        """Wait until something is ready or due, and do it."""
        for descriptor, _ in self._poll.poll(self._patience()):
            callback = self._ready.get(descriptor)
            if callback is not None:
                callback()
        now = time.monotonic()
        for key, (when, callback) in list(self._due.items()):
            if when <= now and self._due.get(key) == (when, callback):
                del self._due[key]
                callback()

    def _patience(self) -> int | None:
        """Milliseconds until something is due, rounded up."""
        if not self._due:
            return None
        left = min(when for when, _ in self._due.values()) - time.monotonic()
        return max(0, int(left * 1000) + 1)
