"""What an API's calls have come to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentfly.errors import BudgetSpent
from agentfly.resources.api.limits import ApiLimits


@dataclass(frozen=True)
class ApiUsage:
    """Totals since the start of an API's host.

    Attributes:
        calls: that were answered.
        refusals: for their rate; each try counts.
        input_tokens, output_tokens: as charged.
        cost: in the currency of the prices.
        waiting, under_way: calls at this moment.
    """

    calls: int = 0
    refusals: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    waiting: int = 0
    under_way: int = 0


@dataclass(slots=True)
class Charge:
    """What one call has come to, filled while it runs."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        """Read and written."""
        return self.input_tokens + self.output_tokens


class Bill:
    """Adds up charges, and says when the budget is spent. The price of a call counts from its beginning.

    Args:
        where: the API, for errors.
        limits: prices and budget.
    """

    def __init__(self, where: str, limits: ApiLimits) -> None:
        self._where = where
        self._limits = limits
        self._usage = ApiUsage()
        self._under_way = 0

    @property
    def usage(self) -> ApiUsage:
        """So far."""
        return self._usage

    def begin(self) -> None:
        """A call is about to go out.

        Raises:
            BudgetSpent: it must not.
        """
        self.check()
        self._under_way += 1

    def check(self) -> None:
        """As `begin`, without beginning."""
        limits, spent = self._limits, self._usage.cost
        price = limits.price_per_call
        committed = spent + price * self._under_way
        if limits.budget is not None and (spent >= limits.budget or committed + price > limits.budget * (1 + 1e-9)):
            raise BudgetSpent(
                f"{self._where} has cost {committed:g} of its budget of {limits.budget:g}: no further call goes out; "
                "raise the budget"
            )

    def refused(self) -> None:
        """The API refused the call; that costs nothing."""
        self._under_way -= 1
        self._usage = replace(self._usage, refusals=self._usage.refusals + 1)

    def end(self, charge: Charge) -> None:
        """A call has ended, well or not."""
        self._under_way -= 1
        limits, known = self._limits, self._usage
        tokens = (
            charge.input_tokens * limits.price_per_input_token + charge.output_tokens * limits.price_per_output_token
        )
        self._usage = replace(
            known,
            calls=known.calls + 1,
            input_tokens=known.input_tokens + charge.input_tokens,
            output_tokens=known.output_tokens + charge.output_tokens,
            cost=known.cost + limits.price_per_call + tokens + charge.cost,
        )
