"""What an external API allows, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from agentfly.errors import ConfigError

_POSITIVE = (
    "concurrency",
    "requests_per_minute",
    "tokens_per_minute",
    "burst",
    "first_backoff",
    "max_backoff",
    "max_retry_after",
    "budget",
)
_NOT_NEGATIVE = (
    "tokens_per_call",
    "max_retries",
    "price_per_call",
    "price_per_input_token",
    "price_per_output_token",
)


@dataclass(frozen=True)
class ApiLimits:
    """Limits of all calls of a job together.

    Attributes:
        concurrency: calls in progress at once.
        requests_per_minute, tokens_per_minute: None is no limit. Tokens are those that a call charges, read and
            written; before it is known they are taken to be as many as lately.
        burst: seconds' worth of either that may go out at once; at least one request.
        tokens_per_call: what a call is taken to need before any has told.
        max_retries: of one call that the API refuses for its rate, before the caller is told (`RateLimited`).
        first_backoff, max_backoff: seconds that all calls stop when the API doesn't say for how long; it doubles.
        max_retry_after: when the API wants to be left alone for longer, calls fail at once instead of waiting.
        price_per_call, price_per_input_token, price_per_output_token: in a currency of your own.
        budget: once spent, further calls are refused (`BudgetSpent`); None is no limit.
    """

    concurrency: int = 8
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    burst: float = 1.0
    tokens_per_call: float = 0.0
    max_retries: int = 8
    first_backoff: float = 1.0
    max_backoff: float = 60.0
    max_retry_after: float = 600.0
    price_per_call: float = 0.0
    price_per_input_token: float = 0.0
    price_per_output_token: float = 0.0
    budget: float | None = None

    def check(self, where: str) -> None:
        """See that every number makes sense.

        Raises:
            ConfigError: one that doesn't.
        """
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{where}: {name} is {value}, it must be positive")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise ConfigError(f"{where}: {name} is {getattr(self, name)}, it can't be negative")


def read_limits(values: Mapping[str, Any], where: str, max_retries: int) -> ApiLimits:
    """Limits from a mapping, as jobs give them.

    Args:
        values: fields of `ApiLimits`.
        where: for errors.
        max_retries: when they don't say.

    Raises:
        ConfigError: a field that there isn't, or a wrong number.
    """
    known = [item.name for item in fields(ApiLimits)]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ConfigError(f"{where}: limits have no {unknown[0]!r}; there are: {', '.join(known)}")
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ConfigError(f"{where}: {name} is {value!r}, it must be a number")
    limits = ApiLimits(**{"max_retries": max_retries, **values})
    limits.check(where)
    return limits
