"""A rate of so many a minute, kept without a clock."""

from __future__ import annotations


class Bucket:
    """A token bucket as virtual scheduling (GCRA, ITU-T I.371 annex A): its whole state is one point in time.

    In any stretch of t seconds it lets through what it gains in t, and `burst` more. It may be overdrawn, for what
    isn't known before it is spent: then nothing goes through until that is made up for.

    Args:
        per_minute: what it gains.
        burst: what it holds.
    """

    def __init__(self, per_minute: float, burst: float) -> None:
        self._rate = per_minute / 60.0
        self._burst = burst
        self._full_at = float("-inf")

    def ready_at(self, amount: float) -> float:
        """The earliest time for this amount; one that is more than the burst waits for a full bucket."""
        return self._full_at - (self._burst - min(amount, self._burst)) / self._rate

    def take(self, amount: float, now: float) -> None:
        """Take out an amount."""
        self._full_at = max(self._full_at, now) + amount / self._rate

    def settle(self, difference: float) -> None:
        """What was taken turns out to be so much more (or less, if negative)."""
        self._full_at += difference / self._rate
