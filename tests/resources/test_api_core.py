"""The pure parts of an API's limits: the bucket, the limiter, refusals, the bill."""

from __future__ import annotations

import email.utils
import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly.errors import BudgetSpent, ConfigError, RateLimited
from agentfly.resources.api.bill import Bill, Charge
from agentfly.resources.api.bucket import Bucket
from agentfly.resources.api.limiter import Limiter
from agentfly.resources.api.limits import ApiLimits
from agentfly.resources.api.pushback import pushback, retry_after

SLACK = 1e-6


@given(
    st.floats(1, 10_000),
    st.floats(1, 100),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1)), min_size=1, max_size=60),
)
def test_a_bucket_lets_through_its_rate_and_one_burst(
    rate: float, burst: float, steps: list[tuple[float, float]]
) -> None:
    bucket, now, taken = Bucket(rate, burst), 0.0, []
    for wait, share in steps:
        amount = share * burst
        now = max(now + wait, bucket.ready_at(amount))
        bucket.take(amount, now)
        taken.append((now, amount))
    for first in range(len(taken)):
        total = 0.0
        for time, amount in taken[first:]:
            total += amount
            assert total <= burst + rate / 60 * (time - taken[first][0]) + SLACK * total


def test_a_bucket_wastes_nothing_and_makes_up_for_what_was_overdrawn() -> None:
    bucket = Bucket(60.0, 2.0)
    assert [bucket.ready_at(1.0) <= 0.0, bucket.take(1.0, 0.0), bucket.take(1.0, 0.0)][0]
    assert bucket.ready_at(1.0) == pytest.approx(1.0)
    bucket.settle(5.0)
    assert bucket.ready_at(1.0) == pytest.approx(6.0)
    bucket.settle(-5.0)
    assert bucket.ready_at(1.0) == pytest.approx(1.0)
    assert bucket.ready_at(1000.0) == pytest.approx(2.0), "more than it holds waits for a full one"


def test_what_is_given_back_to_a_full_bucket_is_no_credit() -> None:
    bucket = Bucket(60.0, 1.0)
    bucket.take(1.0, 0.0)
    bucket.settle(-1.0)
    bucket.take(1.0, 100.0)
    assert bucket.ready_at(1.0) == pytest.approx(101.0)


class Api:
    """An API with limits of its own, and the limiter before it; time is simulated."""

    def __init__(self, limits: ApiLimits, seed: int) -> None:
        self.rng = random.Random(seed)
        self.limits = limits
        self.limiter = Limiter(limits, random.Random(seed))
        self.now = 0.0
        self.ends: dict[int, float] = {}
        self.sent: list[tuple[float, int]] = []
        self.quiet_until = 0.0

    def run(self, calls: int, refuse: float, hold: float) -> list[int]:
        """All calls to their end; those that the API never served."""
        given_up = []
        for number in range(calls):
            self.limiter.ask(number)
        for _ in range(100_000):
            self.admit()
            ready = self.limiter.ready_at()
            upcoming = [*self.ends.values(), *([] if ready is None else [ready])]
            if not upcoming:
                break
            self.now = max(self.now, min(upcoming))
            for number in [number for number, end in self.ends.items() if end <= self.now]:
                del self.ends[number]
                if self.rng.random() >= refuse:
                    self.limiter.answered(number, 10.0)
                    continue
                asked = self.rng.choice((None, 3.0))
                if not self.limiter.refused(number, asked, self.now):
                    given_up.append(number)
                self.quiet_until = max(self.quiet_until, self.now + (3.0 if asked else 0.5))
        assert self.limiter.waiting == self.limiter.under_way == 0, "somebody waits for ever"
        return given_up

    def admit(self) -> None:
        for number in self.limiter.admit(self.now):
            assert self.now >= self.quiet_until, "went out although the API wanted to be left alone"
            self.sent.append((self.now, number))
            self.ends[number] = self.now + self.rng.expovariate(1.0)
        assert self.limiter.under_way == len(self.ends) <= self.limits.concurrency


@given(
    seed=st.integers(0, 1000),
    calls=st.integers(1, 40),
    concurrency=st.integers(1, 5),
    requests=st.none() | st.floats(30, 600),
    tokens=st.none() | st.floats(300, 6000),
    refuse=st.sampled_from((0.0, 0.3, 0.9)),
)
def test_every_call_ends_within_the_limits(
    seed: int, calls: int, concurrency: int, requests: float | None, tokens: float | None, refuse: float
) -> None:
    limits = ApiLimits(concurrency, requests, tokens, max_retries=4, tokens_per_call=10.0)
    api = Api(limits, seed)
    given_up = api.run(calls, refuse, 1.0)
    assert {number for _, number in api.sent} == set(range(calls))
    if requests is not None:
        burst = max(1.0, requests / 60)
        for first, (start, _) in enumerate(api.sent):
            for count, (time, _) in enumerate(api.sent[first:], 1):
                assert count <= burst + requests / 60 * (time - start) + SLACK * count
    if not refuse:
        assert not given_up
        assert [number for _, number in api.sent] == list(range(calls)), "not in order"


def test_calls_go_out_as_soon_as_they_may() -> None:
    limiter = Limiter(ApiLimits(concurrency=2, requests_per_minute=60), random.Random(0))
    for number in range(3):
        limiter.ask(number)
    assert limiter.admit(0.0) == [0]
    assert limiter.ready_at() == pytest.approx(1.0)
    assert limiter.admit(1.0 + SLACK) == [1]
    assert limiter.ready_at() is None, "no room: nothing to wake up for"
    limiter.answered(0, 0.0)
    assert limiter.admit(2.0 + 2 * SLACK) == [2]


def test_tokens_are_expected_to_be_as_many_as_lately() -> None:
    limiter = Limiter(ApiLimits(concurrency=9, tokens_per_minute=600), random.Random(0))
    limiter.ask(0)
    assert limiter.admit(0.0) == [0]
    limiter.answered(0, 100.0)
    limiter.ask(1)
    # 10 a second, ten of them at once: 100 were overdrawn, and the next is taken to need 10.
    assert limiter.ready_at() == pytest.approx(10.0)


def test_calls_under_way_together_are_refused_as_one_round_and_one_goes_ahead_after_it() -> None:
    limits = ApiLimits(concurrency=4, first_backoff=1.0)
    limiter = Limiter(limits, random.Random(0))
    for number in range(4):
        limiter.ask(number)
    limiter.admit(0.0)
    for number in range(4):
        assert limiter.refused(number, None, 0.0)
    ready = limiter.ready_at()
    assert ready is not None and 0.5 <= ready <= 1.0, "four refusals doubled the back-off"
    assert limiter.admit(ready) == [0]
    assert limiter.ready_at() is None, "one alone is to try"
    limiter.refused(0, None, ready)
    second = limiter.ready_at()
    assert second is not None and 1.0 <= second - ready <= 2.0, "the next round waits longer"
    assert limiter.admit(second) == [0]
    limiter.answered(0, 0.0)
    assert limiter.admit(second) == [1, 2, 3]


def test_one_that_tries_alone_and_gives_up_lets_the_next_try() -> None:
    limiter = Limiter(ApiLimits(concurrency=2), random.Random(0))
    for number in range(2):
        limiter.ask(number)
    limiter.admit(0.0)
    limiter.refused(0, 1.0, 0.0)
    limiter.refused(1, 1.0, 0.0)
    assert limiter.admit(1.0) == []
    assert limiter.admit(1.2) == [0]
    limiter.withdraw(0)
    assert limiter.admit(1.2) == [1]


def test_an_api_that_wants_to_be_left_alone_for_long_is() -> None:
    limiter = Limiter(ApiLimits(max_retry_after=60), random.Random(0))
    limiter.ask(0)
    limiter.admit(0.0)
    assert not limiter.refused(0, 3600.0, 0.0)
    assert limiter.refusing(10.0) is not None
    assert limiter.refusing(3950.0) is None


def test_retry_after_is_read_in_all_its_forms() -> None:
    date = email.utils.formatdate(1_000_030.0, usegmt=True)
    assert retry_after({"Retry-After": "7"}, 0.0) == 7.0
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}, 0.0) == 1.5
    assert retry_after({"Retry-After": date}, 1_000_000.0) == pytest.approx(30.0)
    for nonsense in ("soon", "", "nan", "-4", "inf"):
        assert retry_after({"Retry-After": nonsense}, 0.0) is None


def test_refusals_are_known_by_their_status() -> None:
    def error(status: int, **headers: str) -> Exception:
        failure = Exception("no")
        failure.response = SimpleNamespace(status_code=status, headers=headers)  # type: ignore[attr-defined]
        return failure

    found = pushback(error(429, **{"Retry-After": "4"}), 0.0)
    assert found is not None and found.retry_after == 4.0
    assert pushback(error(503), 0.0) is not None
    assert pushback(error(500), 0.0) is None
    assert pushback(ValueError("429"), 0.0) is None
    mine = RateLimited(retry_after=2.0)
    assert pushback(mine, 0.0) is mine


def test_the_bill_adds_up_and_ends_at_the_budget() -> None:
    limits = ApiLimits(price_per_call=0.25, price_per_input_token=0.01, price_per_output_token=0.02, budget=1.0)
    bill = Bill("API 'x'", limits)
    bill.begin()
    bill.end(Charge(input_tokens=10, output_tokens=10, cost=0.05))
    assert bill.usage.cost == pytest.approx(0.6)
    bill.begin()
    with pytest.raises(BudgetSpent, match="API 'x' has cost 0.85 of its budget of 1"):
        bill.begin()
    bill.refused()
    bill.begin()  # what was refused has cost nothing
    bill.end(Charge())
    assert (bill.usage.calls, bill.usage.refusals, bill.usage.input_tokens) == (2, 1, 10)


def test_free_calls_go_on_until_the_budget_is_spent() -> None:
    bill = Bill("API 'x'", ApiLimits(budget=1.0))
    bill.begin()
    bill.end(Charge(cost=1.0))
    with pytest.raises(BudgetSpent):
        bill.check()


@pytest.mark.parametrize("name", ["concurrency", "requests_per_minute", "burst", "budget", "max_backoff"])
def test_limits_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=f"API spec 'x': {name} is 0, it must be positive"):
        ApiLimits(**{name: 0}).check("API spec 'x'")
