"""What a pool has seen lately: how long waits, leases and starts take."""

from __future__ import annotations

from collections import deque

_RECENT = 1000
_WEIGHT = 0.05


class Average:
    """An exponentially weighted mean: the last twenty values or so."""

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, value: float) -> None:
        """Take a value in."""
        self.value = value if self.value is None else self.value + _WEIGHT * (value - self.value)


class History:
    """Recent times of a pool, in seconds, and counts since its start."""

    def __init__(self) -> None:
        self.hold = Average()
        self.start = Average()
        self._waits: deque[float] = deque(maxlen=_RECENT)
        self.counts = dict.fromkeys(("leases", "starts", "start_failures", "resets", "reset_failures", "deaths"), 0)

    def granted(self, waited: float) -> None:
        """A lease was granted after a wait."""
        self.counts["leases"] += 1
        self._waits.append(waited)

    def wait_quantiles(self) -> tuple[float, float]:
        """Median and 99th percentile of recent waits."""
        waits = sorted(self._waits)
        if not waits:
            return 0.0, 0.0
        return waits[len(waits) // 2], waits[min(len(waits) - 1, len(waits) * 99 // 100)]
