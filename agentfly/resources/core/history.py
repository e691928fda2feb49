"""What a pool has seen lately: how long waits, leases and starts take."""

from __future__ import annotations

import math
from collections import deque

_RECENT = 1000
_WEIGHT = 0.05
_MEMORY = 30.0  # seconds after which an arrival counts a third
_START_BELOW, _STOP_ABOVE = 2.0, 3.0  # standard deviations; between them nothing is done


class Average:
    """An exponentially weighted mean: the last twenty values or so."""

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, value: float) -> None:
        """Take a value in."""
        self.value = value if self.value is None else self.value + _WEIGHT * (value - self.value)


class Rate:
    """Events a second, older ones weighing less and less."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._last = 0.0

    def add(self, now: float) -> None:
        """An event."""
        self._weight = self._faded(now) + 1.0
        self._last = now

    def value(self, now: float) -> float:
        """The rate at present."""
        return self._faded(now) / _MEMORY

    def _faded(self, now: float) -> float:
        return self._weight * math.exp((self._last - now) / _MEMORY)


class History:
    """Recent times of a pool, in seconds, and counts since its start."""

    def __init__(self) -> None:
        self.arrivals = Rate()
        self.hold = Average()
        self.start = Average()
        self._waits: deque[float] = deque(maxlen=_RECENT)
        self.counts = dict.fromkeys(("leases", "starts", "start_failures", "resets", "reset_failures", "deaths"), 0)

    def granted(self, waited: float) -> None:
        """A lease was granted after a wait."""
        self.counts["leases"] += 1
        self._waits.append(waited)

    def spares_wanted(self, leased: int, now: float, *, giving_back: bool) -> int:
        """Idle slots that will be asked for before a host that is started now is up; more when it is asked what to
        give back, so that nothing is stopped that will soon be started again.

        Requests that come meanwhile, less the leases that end, and some standard deviations of their difference:
        both are taken as Poisson. As many as end come in a steady state, and what is left is the square root rule
        of staffing (Halfin and Whitt, Operations Research 29(3), 1981).
        """
        start, hold = self.start.value, self.hold.value
        if start is None or not hold:
            return 0
        coming = self.arrivals.value(now) * start
        ending = leased * start / hold
        deviations = _STOP_ABOVE if giving_back else _START_BELOW
        return max(0, round(coming - ending + deviations * math.sqrt(coming + ending)))

    def wait_quantiles(self) -> tuple[float, float]:
        """Median and 99th percentile of recent waits."""
        waits = sorted(self._waits)
        if not waits:
            return 0.0, 0.0
        return waits[len(waits) // 2], waits[min(len(waits) - 1, len(waits) * 99 // 100)]
