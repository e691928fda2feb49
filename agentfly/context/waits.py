"""How long a rollout has queued."""

from __future__ import annotations

import time


class Waits:
    """Seconds in which at least one wait was in progress; a context manager around each wait."""

    def __init__(self) -> None:
        self._running = 0
        self._since = 0.0
        self._sum = 0.0

    @property
    def total(self) -> float:
        """Seconds so far, waits in progress included."""
        return self._sum + (time.monotonic() - self._since if self._running else 0.0)

    def __enter__(self) -> None:
        if self._running == 0:
            self._since = time.monotonic()
        self._running += 1

    def __exit__(self, *_: object) -> None:
        self._running -= 1
        if self._running == 0:
            self._sum += time.monotonic() - self._since
