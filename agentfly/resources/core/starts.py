"""When to try to start a host again after one could not be started: back-off, and a circuit breaker."""

from __future__ import annotations

_FIRST_DELAY = 0.5
_MAX_DELAY = 30.0


class StartBreaker:
    """Counts what goes wrong with a pool's starts.

    Starts that were tried together are one round and fail at most once: eight hosts that don't start for the same
    reason are one failure. After more than `retries` failures in a row the breaker opens: for a while nothing is
    started. Then one host is tried; if it works, all is well again.

    Args:
        retries: failures in a row that are put up with.
    """

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._failures = 0
        self._early_deaths = 0
        self._open_until: float | None = None
        self._death_round = -1
        self.round = 0
        self.reason = ""

    @property
    def delay(self) -> float:
        """Seconds to wait before the next start; doubles with each failure."""
        failures = self._in_a_row
        if not failures or self._open_until is not None:
            return 0.0  # the trial after an open breaker has waited long enough
        return min(_MAX_DELAY, _FIRST_DELAY * 2.0 ** (failures - 1))

    @property
    def trying(self) -> bool:
        """Whether there has been a failure since the last success: then start one host at a time."""
        return self._in_a_row > 0

    def is_open(self, now: float) -> bool:
        """Whether nothing may be started at present."""
        return self._open_until is not None and now < self._open_until

    def failed(self, round_: int, reason: str, now: float) -> bool:
        """A start of that round failed; returns whether the breaker is open."""
        counts = round_ == self.round
        self._failures += counts
        return self._count(reason, now, counts=counts)

    def died_early(self, round_: int, now: float) -> bool:
        """A host died before any lease in it had ended; returns whether the breaker is open."""
        counts = round_ != self._death_round
        self._early_deaths += counts
        self._death_round = round_
        return self._count("its host dies soon after its start", now, counts=counts)

    def started(self) -> None:
        """A host has started."""
        self._failures = 0
        self._open_until = None
        self.round += 1

    def served(self) -> None:
        """A lease has ended in good order."""
        self._early_deaths = 0

    @property
    def _in_a_row(self) -> int:
        return self._failures + self._early_deaths

    def _count(self, reason: str, now: float, *, counts: bool) -> bool:
        self.reason = reason
        if counts:
            self.round += 1
            if self._in_a_row > self._retries:
                self._open_until = now + _MAX_DELAY
        return self.is_open(now)
