"""Which calls of an API may go out, and when the next. Pure: events and the time in, decisions out."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

from agentfly.resources.api.bucket import Bucket
from agentfly.resources.api.limits import ApiLimits

_WEIGHT = 0.1
_JITTER = 0.1
_MAX_DOUBLINGS = 30


@dataclass(slots=True)
class _Call:
    """A call that waits or is under way.

    Attributes:
        tokens: taken out of the bucket when it went out.
        round: how often the API had stopped everybody when it went out.
        refusals: how often the API has refused it.
    """

    tokens: float = 0.0
    round: int = 0
    refusals: int = 0


class Limiter:
    """Calls go out in the order in which they came, as soon as all limits allow.

    When the API refuses one for its rate, nothing goes out for as long as it says, else for a time that doubles
    with each such round (jittered above the half: M. Brooker, "Exponential backoff and jitter", 2015). After that
    one call goes ahead, and the others when it has been answered. Calls that were under way together make one
    round.

    Args:
        limits: of the API.
        rng: draws the jitter.
    """

    def __init__(self, limits: ApiLimits, rng: random.Random) -> None:
        self._limits = limits
        self._rng = rng
        self._requests = _bucket(limits.requests_per_minute, limits.burst)
        self._tokens = _bucket(limits.tokens_per_minute, limits.burst)
        self._expected = limits.tokens_per_call
        self._order: list[int] = []  # a heap; those that have left stay in it until their turn
        self._queue: dict[int, _Call] = {}
        self._out: dict[int, _Call] = {}
        self._blocked_until = float("-inf")
        self._round = 0
        self._in_a_row = 0
        self._trying = False

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len(self._queue)

    @property
    def under_way(self) -> int:
        """Calls that went out and have not ended."""
        return len(self._out)

    def ask(self, call: int) -> None:
        """A call wants to go out; numbers grow in the order of asking."""
        self._enqueue(call, _Call())

    def admit(self, now: float) -> list[int]:
        """The calls that go out now."""
        admitted = []
        while (ready := self.ready_at()) is not None and ready <= now:
            admitted.append(self._send(heapq.heappop(self._order), now))
        return admitted

    def ready_at(self) -> float | None:
        """When the first in the queue can go out; None while one has to end before, or none waits."""
        while self._order and self._order[0] not in self._queue:
            heapq.heappop(self._order)
        if not self._order or not self._has_room():
            return None
        ready = self._blocked_until
        if self._requests is not None:
            ready = max(ready, self._requests.ready_at(1.0))
        if self._tokens is not None:
            ready = max(ready, self._tokens.ready_at(self._expected))
        return ready

    def refusing(self, now: float) -> float | None:
        """Seconds for which the API wants to be left alone, if they are too many to wait for."""
        left = self._blocked_until - now
        return left if left > self._limits.max_retry_after else None

    def withdraw(self, call: int) -> None:
        """A call gives up, in the queue or under way; nothing is known of what the API made of it."""
        self._queue.pop(call, None)
        self._out.pop(call, None)

    def answered(self, call: int, tokens: float) -> None:
        """The API has served a call, or failed in its own way; it needed so many tokens."""
        known = self._out.pop(call)
        self._expected += _WEIGHT * (tokens - self._expected)
        if self._tokens is not None:
            self._tokens.settle(tokens - known.tokens)
        if known.round == self._round:
            self._in_a_row = 0
            self._trying = False

    def refused(self, call: int, retry_after: float | None, now: float) -> bool:
        """The API has refused a call for its rate; returns whether it is to be tried again.

        Args:
            retry_after: seconds that the API asks for; None when it doesn't say.
        """
        known = self._out.pop(call)
        if self._tokens is not None:
            self._tokens.settle(-known.tokens)
        self._block(known, retry_after, now)
        known.refusals += 1
        if known.refusals > self._limits.max_retries or self.refusing(now) is not None:
            return False
        self._enqueue(call, known)
        return True

    # Inside

    def _has_room(self) -> bool:
        if len(self._out) >= self._limits.concurrency:
            return False
        return not self._trying or all(known.round != self._round for known in self._out.values())

    def _enqueue(self, number: int, call: _Call) -> None:
        self._queue[number] = call
        heapq.heappush(self._order, number)

    def _send(self, number: int, now: float) -> int:
        call = self._out[number] = self._queue.pop(number)
        call.round, call.tokens = self._round, self._expected
        if self._requests is not None:
            self._requests.take(1.0, now)
        if self._tokens is not None:
            self._tokens.take(call.tokens, now)
        return number

    def _block(self, call: _Call, retry_after: float | None, now: float) -> None:
        if call.round == self._round:
            self._round += 1
            self._in_a_row += 1
        if retry_after is not None:
            delay = retry_after * (1.0 + _JITTER * self._rng.random())
        else:
            longest = self._limits.first_backoff * 2.0 ** min(max(0, self._in_a_row - 1), _MAX_DOUBLINGS)
            delay = min(longest, self._limits.max_backoff) * self._rng.uniform(0.5, 1.0)
        self._blocked_until = max(self._blocked_until, now + delay)
        self._trying = True


def _bucket(per_minute: float | None, seconds: float) -> Bucket | None:
    return None if per_minute is None else Bucket(per_minute, max(1.0, per_minute * seconds / 60.0))
